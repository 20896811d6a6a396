'use strict';
// hloom_lock from node-postgres: first what an application needs, then the checks.

const { createHash, createHmac, randomUUID } = require('node:crypto');
const { Client } = require('pg');

// What an application copies -------------------------------------------------

// The handle of the lease, or undefined when another owner holds the key.
// handle.fence is a string: node-postgres does not turn a bigint into a number.
async function tryAcquire(db, key, namespace = 'drivers') {
  const { rows } = await db.query({
    name: 'try-acquire',
    text: 'SELECT * FROM hloom_try_acquire($1, $2, lease => $3)',
    values: [namespace, key, '30 s'],
  });
  return rows[0];
}

// True when the lease was still ours.
async function release(db, handle) {
  const { rows } = await db.query({
    name: 'release',
    text: 'SELECT hloom_release($1, $2, $3) AS released',
    values: [handle.namespace, handle.key, handle.owner],
  });
  return rows[0].released;
}

// Does the work in a transaction under the lease; false when somebody else is at it.
async function skipIfBusy(db, key, work) {
  const handle = await tryAcquire(db, key);
  if (!handle) return false;
  try {
    await db.query('BEGIN');
    await work(db);
    // The work is committed before the lease goes, so that the next owner sees it.
    await db.query('COMMIT');
  } catch (error) {
    // An aborted transaction could not even run hloom_release.
    await db.query('ROLLBACK');
    throw error;
  } finally {
    await release(db, handle);
  }
  return true;
}

// The key that hloom_key_from_sensitive() makes, without showing the value to the server.
function keyFromSensitive(value, secret) {
  const hash = secret ? createHmac('sha256', secret) : createHash('sha256');
  return hash.update(value).digest('hex').slice(0, 32);
}

// The checks -----------------------------------------------------------------

function check(passed, name) {
  console.log(`${passed ? 'ok' : 'not ok'} - ${name}`);
}

async function connect() {
  // A refused attempt that waits for the other transaction would end in this timeout.
  const db = new Client({ statement_timeout: 1000 });
  await db.connect();
  return db;
}

async function sqlstate(promise) {
  try {
    await promise;
    return undefined;
  } catch (error) {
    return error.code;
  }
}

// No row, without waiting for anybody.
async function refused(db, key) {
  let handle;
  const code = await sqlstate(tryAcquire(db, key).then((row) => { handle = row; }));
  if (code && code !== '57014') throw new Error(`refused with ${code}`);
  return !code && !handle;
}

async function lifecycle(first, second, run, explicit) {
  const mode = explicit ? 'inside BEGIN' : 'autocommit';
  const begin = async (db) => { if (explicit) await db.query('BEGIN'); };
  const end = async (db) => { if (explicit) await db.query('ROLLBACK'); };
  const key = `${run}:${explicit ? 'begin' : 'autocommit'}`;

  await begin(first);
  await begin(second);
  let handle = await tryAcquire(first, key);
  check(handle, `${mode}: a free key gives one row`);
  check(await refused(second, key), `${mode}: another connection gets no row, without waiting`);
  await first.query('SELECT 1');
  check(await release(first, handle) === true, `${mode}: release tells the owner true`);
  const other = await tryAcquire(second, key);
  check(other, `${mode}: the next owner gets the key before the first commits`);
  check(await release(first, handle) === false, `${mode}: a former owner releases nothing`);
  check(BigInt(other.fence) > BigInt(handle.fence), `${mode}: the next owner has the higher fence`);
  await release(second, other);
  await end(first);
  await end(second);

  await first.query('BEGIN');
  handle = await tryAcquire(first, key);
  await first.query('ROLLBACK');
  check(await refused(second, key), `${mode}: the lease outlives a ROLLBACK`);
  check(await release(first, handle) === true, `${mode}: and is released after it`);

  await begin(first);
  check(await sqlstate(tryAcquire(first, null)) === '22004', `${mode}: a NULL key is 22004`);
  await end(first);
  await begin(first);
  check(await sqlstate(tryAcquire(first, key, 'Bad Name')) === '22023',
    `${mode}: a bad namespace is 22023`);
  await end(first);

  await begin(first);
  let right = 0;
  for (let n = 0; n < 20; n++) {
    handle = await tryAcquire(first, key);
    if (handle && await refused(second, key) && await release(first, handle)) right++;
  }
  const { rows } = await first.query(`SELECT count(*)::int AS n FROM pg_prepared_statements
    WHERE name IN ('try-acquire', 'release')`);
  check(right === 20 && rows[0].n === 2, `${mode}: named statements, 20 times`);
  await end(first);
}

async function skips(first, second, run) {
  const key = `${run}:skip`;
  const done = await skipIfBusy(first, key, (db) => db.query('SELECT 1'));
  let handle = await tryAcquire(second, key);
  const skipped = !await skipIfBusy(first, key, (db) => db.query('SELECT 1'));
  check(done && skipped, 'skip if busy works when free, skips when held');
  await release(second, handle);

  const failed = await sqlstate(skipIfBusy(first, key, (db) => db.query('SELECT 1 / 0')));
  handle = await tryAcquire(second, key);
  check(failed === '22012' && handle,
    'failing work keeps its own error and gives the lease back');
  await release(second, handle);
}

async function types(db, run) {
  const key = `${run}:types`;
  let handle = await tryAcquire(db, key);
  check(handle.namespace === 'drivers' && handle.key === key && handle.is_coordinated === true,
    'namespace, key and is_coordinated come back');
  check(/^[0-9a-f-]{36}$/.test(handle.owner), 'owner is a string');
  check(typeof handle.fence === 'string' && BigInt(handle.fence) > 0n,
    'fence is a string that BigInt reads');
  check(Number.isSafeInteger(Number(handle.fence)), 'fence is also exact as a number');
  check(handle.lease.seconds === 30, 'lease is the interval that was granted');
  const left = handle.lease_end - Date.now();
  check(handle.lease_end instanceof Date && left > 20000 && left < 31000,
    'lease_end is a Date, about one lease ahead');
  check(await release(db, handle), 'released by a string whose type the server chooses');

  for (const type of ['uuid', 'text']) {
    handle = await tryAcquire(db, key);
    const { rows } = await db.query(`SELECT hloom_release($1, $2, $3::${type}) AS released`,
      [handle.namespace, handle.key, handle.owner]);
    check(rows[0].released === true, `released by a parameter typed ${type}`);
  }
}

async function hashes(db) {
  check(keyFromSensitive('1234') === '03ac674216f3e15c761ee1a5e255f067'
    && keyFromSensitive('refresh-token-value') === 'e65009f6e0ae9fc204adcb73a208f63c'
    && keyFromSensitive('') === 'e3b0c44298fc1c149afbf4c8996fb924'
    && keyFromSensitive('1234', 'catalog-service-pepper') === '4206b0e68f2edc74108d084419373455',
  'hashes on the client are the known ones');
  const secret = Buffer.from('\0pepper');
  const { rows } = await db.query(`SELECT v, hloom_key_from_sensitive(v) AS plain,
    hloom_key_from_sensitive(v, $1) AS keyed FROM unnest($2::text[]) AS v`,
  [secret, ['1234', '', 'h\u00e9 \u65e5\u672c \u{1f512}']]);
  check(rows.length === 3 && rows.every(({ v, plain, keyed }) => plain === keyFromSensitive(v)
    && keyed === keyFromSensitive(v, secret)), 'and those of the server');
}

// A busy key: a bounded wait, error 55P03, and the transaction after it.
async function waits(first, second, run) {
  const key = `${run}:waits`;
  await second.query("SET statement_timeout = '60s'");
  const handle = await tryAcquire(first, key);
  const started = process.hrtime.bigint();
  const { rows } = await second.query(`SELECT * FROM hloom_try_acquire($1, $2,
    max_wait => '300 ms', retry => hloom_retry_interval(1000, '50 ms'))`, ['drivers', key]);
  const waited = Number(process.hrtime.bigint() - started) / 1e6;
  check(rows.length === 0 && waited >= 150 && waited < 30000, 'a bounded wait gives no row');

  const acquire = "SELECT * FROM hloom_acquire($1, $2, max_wait => '100 ms')";
  await second.query('BEGIN');
  const busy = await second.query(acquire, ['drivers', key]).catch((error) => error);
  check(busy.code === '55P03', 'a key that stays busy is error 55P03');
  const detail = JSON.parse(busy.detail);
  check(detail.namespace === 'drivers' && detail.key === key && detail.attempts >= 1
    && detail.waited_ms >= 0 && !`${busy.message}${busy.detail}`.includes(handle.owner),
  'its detail is JSON, without the owner');
  check(await sqlstate(second.query('SELECT 1')) === '25P02', 'the transaction is aborted');
  await second.query('ROLLBACK');

  await second.query('BEGIN');
  await second.query('SAVEPOINT before');
  await second.query(acquire, ['drivers', key]).catch(() => {});
  await second.query('ROLLBACK TO before');
  await release(first, handle);
  const next = await second.query(acquire, ['drivers', key]);
  await second.query('COMMIT');
  check(BigInt(next.rows[0].fence) > BigInt(handle.fence),
    'after ROLLBACK TO the transaction goes on and takes the freed key');
  check(await release(second, next.rows[0]), 'and gives it back after COMMIT');
}

// An action under a lease, with bound values.
async function actions(db, run) {
  const key = `${run}:actions`;
  const execute = 'SELECT hloom_execute_with_lock($1, $2, $3, args => $4) AS rows';
  const { rows } = await db.query(execute,
    ['drivers', key, 'SELECT generate_series(1, $1::int)', ['3']]);
  check(rows[0].rows === '3', 'an action tells its number of rows');
  const failed = await sqlstate(db.query(execute,
    ['drivers', key, 'SELECT 1 / $1::int', ['0']]));
  const handle = await tryAcquire(db, key);
  check(failed === '22012' && handle !== undefined,
    "an action's own error comes through, and the key is free");
  await release(db, handle);
}

async function main() {
  const run = `node-${randomUUID()}`;
  const first = await connect();
  const second = await connect();
  await lifecycle(first, second, run, false);
  await lifecycle(first, second, run, true);
  await skips(first, second, run);
  await types(first, run);
  await hashes(first);
  await waits(first, second, run);
  await actions(first, run);
  await first.end();
  await second.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
