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

// The handle of the lease; an error with code 55P03 when the key stays busy.
async function acquire(db, key, maxWait) {
  const { rows } = await db.query({
    name: 'acquire',
    text: `SELECT * FROM hloom_acquire($1, $2, lease => $3, max_wait => $4,
      retry => hloom_retry_interval(1000, '50 ms'))`,
    values: ['drivers', key, '30 s', maxWait],
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

// The number of rows the SQL command processed, a string; args are the values of its $1 ... $n.
async function executeWithLock(db, key, action, args = []) {
  const { rows } = await db.query(
    'SELECT hloom_execute_with_lock($1, $2, $3, args => $4) AS done',
    ['drivers', key, action, args],
  );
  return rows[0].done;
}

// The rows of the SQL command, each an object.
async function queryWithLock(db, key, action, args = []) {
  const { rows } = await db.query(
    'SELECT r FROM hloom_query_with_lock_json($1, $2, $3, args => $4) AS r',
    ['drivers', key, action, args],
  );
  return rows.map(({ r }) => r);
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

async function connect(timeout = 1000) {
  // A refused attempt that waits for the other transaction would end in this timeout.
  const db = new Client({ statement_timeout: timeout });
  await db.connect();
  return db;
}

// The error that the promise ends with, or undefined.
const failure = (promise) => promise.then(() => undefined, (error) => error);

async function sqlstate(promise) {
  return (await failure(promise))?.code;
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

// Resolves when a call of the other client sleeps between two attempts.
async function untilWaiting(watch, db) {
  for (const deadline = Date.now() + 60000; Date.now() < deadline;) {
    const { rows } = await watch.query(`SELECT 1 FROM pg_stat_activity WHERE pid = $1
      AND state = 'active' AND wait_event_type = 'Extension' AND query ~ 'hloom_acquire'`,
    [db.processID]);
    if (rows.length > 0) return;
    await new Promise((resolve) => { setTimeout(resolve, 10); });
  }
  throw new Error('the call does not wait');
}

async function boundedWait(mode, first, second, key) {
  const handle = await tryAcquire(first, key);
  const start = performance.now();
  const { rows } = await second.query(`SELECT * FROM hloom_try_acquire($1, $2,
    max_wait => '300 ms', retry => hloom_retry_interval(1000, '50 ms'))`, ['drivers', key]);
  const took = performance.now() - start;
  check(rows.length === 0 && took >= 150 && took < 30000,
    `${mode}: a bounded wait for a busy key: no row`);
  await release(first, handle);
}

async function staysBusy(mode, first, second, key) {
  const handle = await tryAcquire(first, key);
  const error = await failure(acquire(second, key, '100 ms'));
  check(error?.code === '55P03', `${mode}: a key that stays busy is code 55P03`);
  const detail = JSON.parse(error.detail);
  check(detail.namespace === 'drivers' && detail.key === key
    && detail.attempts >= 1 && detail.attempts <= 3
    && detail.waited_ms >= 0 && detail.waited_ms < 30000,
  `${mode}: its detail is JSON with namespace, key, attempts and waited_ms`);
  check(!`${error.message} ${error.detail}`.includes(handle.owner),
    `${mode}: and does not show the owner`);
  await release(first, handle);
}

async function transactionAfterBusy(mode, first, second, key) {
  const handle = await tryAcquire(first, key);
  await second.query('SAVEPOINT before');
  await failure(acquire(second, key, '100 ms'));
  const aborted = await sqlstate(second.query('SELECT 1')) === '25P02';
  await second.query('ROLLBACK TO before');
  check(aborted && await sqlstate(second.query('SELECT 1')) === undefined,
    `${mode}: ROLLBACK TO a savepoint makes a transaction usable that found the key busy`);
  await failure(acquire(second, key, '100 ms'));
  check(await sqlstate(second.query('SELECT 1')) === '25P02',
    `${mode}: without a savepoint the transaction is aborted`);
  await second.query('ROLLBACK');
  await release(first, handle);
  const other = await acquire(second, key, '100 ms');
  check(BigInt(other.fence) > BigInt(handle.fence),
    `${mode}: after ROLLBACK the key can be taken, which is free now`);
  await release(second, other);
}

async function sessionAfterBusy(mode, first, second, key) {
  const handle = await tryAcquire(first, key);
  await failure(acquire(second, key, '100 ms'));
  const usable = await sqlstate(second.query('SELECT 1')) === undefined;
  await release(first, handle);
  const other = await acquire(second, key, '100 ms');
  check(usable && BigInt(other.fence) > BigInt(handle.fence),
    `${mode}: the next statement works, and takes the key once it is free`);
  await release(second, other);
}

async function handedOver(mode, first, second, key, watch) {
  const handle = await tryAcquire(first, key);
  const waiter = acquire(second, key, '60 s');
  await untilWaiting(watch, second);
  const released = await release(first, handle);
  const other = await waiter;
  check(released && BigInt(other.fence) > BigInt(handle.fence),
    `${mode}: a waiting call gets the key that is released, with a higher fence`);
  await release(second, other);
}

async function cancelled(mode, first, second, key, watch) {
  let handle = await tryAcquire(first, key);
  const waiter = failure(acquire(second, key, '60 s'));
  await untilWaiting(watch, second);
  await watch.query('SELECT pg_cancel_backend($1)', [second.processID]);
  check((await waiter)?.code === '57014', `${mode}: pg_cancel_backend() ends a wait with 57014`);
  const released = await release(first, handle);
  handle = await tryAcquire(first, key);
  check(released && handle, `${mode}: and its caller holds nothing`);
  await release(first, handle);
}

async function actions(mode, first, second, key, watch, explicit) {
  await first.query('CREATE TEMP TABLE bill (id bigint, paid bigint, note text)');
  await first.query("INSERT INTO bill VALUES (1, 0, ''), (2, 0, '')");
  if (explicit) await first.query('SAVEPOINT filled');
  const note = '\'; DROP TABLE bill; -- {"a",\\}';
  const done = await executeWithLock(first, key, 'UPDATE bill SET note = $1 WHERE id = $2',
    [note, '1']);
  check(done === '1', `${mode}: an action with bound arguments gives its number of rows`);
  const rows = await queryWithLock(first, key,
    'SELECT id, note FROM bill WHERE id < $1 ORDER BY 1', ['3']);
  check(rows.length === 2 && rows[0].note === note && rows[1].id === 2,
    `${mode}: a query gives its rows as objects`);
  const action = 'UPDATE bill SET paid = 100 / $1';
  const code = await sqlstate(executeWithLock(first, key, action, ['0']));
  // The client tells of an error before the server has given back what the statement held.
  const handle = await acquire(second, key, '60 s');
  check(code === '22012' && handle,
    `${mode}: an action's error is its own, and the key is free after it`);
  await release(second, handle);
  if (explicit) await first.query('ROLLBACK TO filled');
  check(await executeWithLock(first, key, action, ['5']) === '2',
    `${mode}: and the next action runs`);
}

async function waits(watch, run, explicit) {
  const mode = explicit ? 'inside BEGIN' : 'autocommit';
  const key = `${run}:${explicit ? 'begin' : 'autocommit'}:wait`;
  const first = await connect(90000);
  const second = await connect(90000);
  const after = explicit ? transactionAfterBusy : sessionAfterBusy;
  for (const part of [boundedWait, staysBusy, after, handedOver, cancelled, actions]) {
    if (explicit) await Promise.all([first.query('BEGIN'), second.query('BEGIN')]);
    await part(mode, first, second, key, watch, explicit);
    if (explicit) await Promise.all([first.query('ROLLBACK'), second.query('ROLLBACK')]);
  }
  await first.end();
  await second.end();
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

async function main() {
  const run = `node-${randomUUID()}`;
  const first = await connect();
  const second = await connect();
  await lifecycle(first, second, run, false);
  await lifecycle(first, second, run, true);
  await waits(first, run, false);
  await waits(first, run, true);
  await skips(first, second, run);
  await types(first, run);
  await hashes(first);
  await first.end();
  await second.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
