import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PSQLException;
import org.postgresql.util.ServerErrorMessage;

/** hloom_lock from JDBC: first what an application needs, then the checks. */
public final class JdbcClient {
    // What an application copies ---------------------------------------------

    record Handle(String namespace, String key, UUID owner, long fence,
                  PGInterval lease, OffsetDateTime leaseEnd, boolean coordinated) { }

    interface Work {
        void run(Connection db) throws SQLException;
    }

    /** The handle of the lease, or null when another owner holds the key. */
    static Handle tryAcquire(Connection db, String namespace, String key) throws SQLException {
        try (PreparedStatement call = db.prepareStatement(
                "SELECT * FROM hloom_try_acquire(?, ?, lease => ?)")) {
            call.setString(1, namespace);
            call.setString(2, key);
            call.setObject(3, new PGInterval(0, 0, 0, 0, 0, 30));
            return handle(call);
        }
    }

    /** The handle of the lease; SQLSTATE 55P03 when the key stays busy for the milliseconds. */
    static Handle acquire(PreparedStatement call, String key, int maxWait) throws SQLException {
        call.setString(1, "drivers");
        call.setString(2, key);
        call.setObject(3, new PGInterval(0, 0, 0, 0, 0, maxWait / 1000.0));
        return handle(call);
    }

    static PreparedStatement prepareAcquire(Connection db) throws SQLException {
        return db.prepareStatement("SELECT * FROM hloom_acquire(?, ?, lease => '30 s',"
            + " max_wait => ?, retry => hloom_retry_interval(1000, '50 ms'))");
    }

    static Handle acquire(Connection db, String key, int maxWait) throws SQLException {
        try (PreparedStatement call = prepareAcquire(db)) {
            return acquire(call, key, maxWait);
        }
    }

    static Handle handle(PreparedStatement call) throws SQLException {
        try (ResultSet row = call.executeQuery()) {
            if (!row.next()) {
                return null;
            }
            return new Handle(row.getString("namespace"), row.getString("key"),
                row.getObject("owner", UUID.class), row.getLong("fence"),
                (PGInterval) row.getObject("lease"),
                row.getObject("lease_end", OffsetDateTime.class),
                row.getBoolean("is_coordinated"));
        }
    }

    /** True when the lease was still ours. The owner may be a UUID or a String. */
    static boolean release(Connection db, Handle handle, Object owner) throws SQLException {
        try (PreparedStatement call = db.prepareStatement("SELECT hloom_release(?, ?, ?)")) {
            call.setString(1, handle.namespace());
            call.setString(2, handle.key());
            call.setObject(3, owner);
            try (ResultSet row = call.executeQuery()) {
                row.next();
                return row.getBoolean(1);
            }
        }
    }

    static boolean release(Connection db, Handle handle) throws SQLException {
        return release(db, handle, handle.owner());
    }

    /** Does the work under the lease; false when somebody else is at it. */
    static boolean skipIfBusy(Connection db, String key, Work work) throws SQLException {
        Handle handle = tryAcquire(db, "drivers", key);
        if (handle == null) {
            return false;
        }
        try {
            work.run(db);
            // The work is committed before the lease goes, so that the next owner sees it.
            commit(db);
        } catch (SQLException | RuntimeException e) {
            // An aborted transaction could not even run hloom_release.
            rollback(db);
            throw e;
        } finally {
            release(db, handle);
            commit(db);
        }
        return true;
    }

    /** The number of rows the SQL command processed; args are the values of its $1 ... $n. */
    static long executeWithLock(Connection db, String key, String action, String... args)
            throws SQLException {
        try (PreparedStatement call = db.prepareStatement(
                "SELECT hloom_execute_with_lock(?, ?, ?, args => ?)")) {
            call.setString(1, "drivers");
            call.setString(2, key);
            call.setString(3, action);
            call.setArray(4, db.createArrayOf("text", args));
            try (ResultSet row = call.executeQuery()) {
                row.next();
                return row.getLong(1);
            }
        }
    }

    /** The rows of the SQL command, each a JSON object. */
    static List<String> queryWithLock(Connection db, String key, String action, String... args)
            throws SQLException {
        List<String> rows = new ArrayList<>();
        try (PreparedStatement call = db.prepareStatement(
                "SELECT hloom_query_with_lock_json(?, ?, ?, args => ?)")) {
            call.setString(1, "drivers");
            call.setString(2, key);
            call.setString(3, action);
            call.setArray(4, db.createArrayOf("text", args));
            try (ResultSet row = call.executeQuery()) {
                while (row.next()) {
                    rows.add(row.getString(1));
                }
            }
        }
        return rows;
    }

    static void commit(Connection db) throws SQLException {
        if (!db.getAutoCommit()) {
            db.commit();
        }
    }

    static void rollback(Connection db) throws SQLException {
        if (!db.getAutoCommit()) {
            db.rollback();
        }
    }

    /** The key that hloom_key_from_sensitive() makes, without showing the value to the server. */
    static String keyFromSensitive(String value, byte[] secret) throws GeneralSecurityException {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        if (secret == null) {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
            return HexFormat.of().formatHex(digest, 0, 16);
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(secret, "HmacSHA256"));
        return HexFormat.of().formatHex(mac.doFinal(bytes), 0, 16);
    }

    // The checks -------------------------------------------------------------

    static Connection connect(boolean autocommit) throws SQLException {
        return connect(autocommit, 1000);
    }

    static Connection connect(boolean autocommit, int timeout) throws SQLException {
        // A refused attempt that waits for the other transaction would end in this timeout.
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT")
            + "/" + System.getenv("PGDATABASE") + "?user=" + System.getenv("PGUSER")
            + "&prepareThreshold=1&options=-c%20statement_timeout=" + timeout;
        Connection db = DriverManager.getConnection(url);
        db.setAutoCommit(autocommit);
        return db;
    }

    static void check(boolean passed, String name) {
        System.out.println((passed ? "ok" : "not ok") + " - " + name);
    }

    static String sqlstate(Connection db, String namespace, String key) throws SQLException {
        try {
            tryAcquire(db, namespace, key);
            return null;
        } catch (SQLException e) {
            return e.getSQLState();
        } finally {
            rollback(db);
        }
    }

    /** No row, without waiting for anybody. */
    static boolean refused(Connection db, String key) throws SQLException {
        try {
            return tryAcquire(db, "drivers", key) == null;
        } catch (SQLException e) {
            rollback(db);
            if ("57014".equals(e.getSQLState())) {
                return false;
            }
            throw e;
        }
    }

    static void execute(Connection db, String sql) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            statement.execute();
        }
    }

    static long number(Connection db, String sql) throws SQLException {
        try (PreparedStatement query = db.prepareStatement(sql);
                ResultSet row = query.executeQuery()) {
            row.next();
            return row.getLong(1);
        }
    }

    static void lifecycle(boolean autocommit, String run) throws SQLException {
        String mode = "autocommit " + (autocommit ? "on" : "off");
        String key = run + ":" + mode.replace(' ', '-');
        try (Connection first = connect(autocommit); Connection second = connect(autocommit)) {
            Handle handle = tryAcquire(first, "drivers", key);
            check(handle != null, mode + ": a free key gives one row");
            check(refused(second, key), mode + ": another connection gets no row, without waiting");
            execute(first, "SELECT 1");
            check(release(first, handle), mode + ": release tells the owner true");
            Handle other = tryAcquire(second, "drivers", key);
            check(other != null, mode + ": the next owner gets the key before the first commits");
            check(!release(first, handle), mode + ": a former owner releases nothing");
            check(other.fence() > handle.fence(), mode + ": the next owner has the higher fence");
            release(second, other);
            rollback(first);
            rollback(second);

            first.setAutoCommit(false);
            handle = tryAcquire(first, "drivers", key);
            first.rollback();
            first.setAutoCommit(autocommit);
            check(refused(second, key), mode + ": the lease outlives a ROLLBACK");
            check(release(first, handle), mode + ": and is released after it");

            boolean done = skipIfBusy(first, key, db -> execute(db, "SELECT 1"));
            handle = tryAcquire(second, "drivers", key);
            boolean skipped = !skipIfBusy(first, key, db -> execute(db, "SELECT 1"));
            check(done && skipped, mode + ": skip if busy works when free, skips when held");
            release(second, handle);

            String failed = null;
            try {
                skipIfBusy(first, key, db -> execute(db, "SELECT 1 / 0"));
            } catch (SQLException e) {
                failed = e.getSQLState();
            }
            handle = tryAcquire(second, "drivers", key);
            check("22012".equals(failed) && handle != null,
                mode + ": failing work keeps its own error and gives the lease back");
            release(second, handle);

            check("22004".equals(sqlstate(first, "drivers", null)), mode + ": a NULL key is 22004");
            check("22023".equals(sqlstate(first, "Bad Name", key)),
                mode + ": a bad namespace is 22023");

            int right = 0;
            for (int n = 0; n < 20; n++) {
                handle = tryAcquire(first, "drivers", key);
                if (handle != null && refused(second, key) && release(first, handle)) {
                    right++;
                }
            }
            long prepared = number(first,
                "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%hloom%'");
            check(right == 20 && prepared >= 2, mode + ": prepared on the server, 20 times");
        }
    }

    interface Part {
        void run(String mode, Connection first, Connection second, String key)
            throws SQLException;
    }

    /** The error that the work ends with, or null. */
    static SQLException failure(Connection db, Work work) {
        try {
            work.run(db);
            return null;
        } catch (SQLException e) {
            return e;
        }
    }

    static boolean ended(SQLException e, String sqlstate) {
        return e != null && sqlstate.equals(e.getSQLState());
    }

    /** Returns when a call on the connection sleeps between two attempts. */
    static void untilWaiting(long pid) throws SQLException {
        long deadline = System.nanoTime() + 60_000_000_000L;
        try (Connection watch = connect(true)) {
            while (number(watch, "SELECT count(*) FROM pg_stat_activity WHERE pid = " + pid
                    + " AND state = 'active' AND wait_event_type = 'Extension'"
                    + " AND query ~ 'hloom_acquire'") == 0) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the call does not wait");
                }
                execute(watch, "SELECT pg_sleep(0.01)");
            }
        }
    }

    /** Calls hloom_acquire in a thread, and returns when it waits. */
    static CompletableFuture<Handle> waiter(Connection db, PreparedStatement call, String key)
            throws SQLException {
        long pid = number(db, "SELECT pg_backend_pid()");
        CompletableFuture<Handle> handle = CompletableFuture.supplyAsync(() -> {
            try {
                return acquire(call, key, 60_000);
            } catch (SQLException e) {
                throw new CompletionException(e);
            }
        });
        untilWaiting(pid);
        return handle;
    }

    static void boundedWait(String mode, Connection first, Connection second, String key)
            throws SQLException {
        Handle handle = tryAcquire(first, "drivers", key);
        long start = System.nanoTime();
        long rows = number(second, "SELECT count(*) FROM hloom_try_acquire('drivers', '" + key
            + "', max_wait => '300 ms', retry => hloom_retry_interval(1000, '50 ms'))");
        long took = (System.nanoTime() - start) / 1_000_000;
        check(rows == 0 && took >= 150 && took < 30_000,
            mode + ": a bounded wait for a busy key: no row");
        release(first, handle);
    }

    static void staysBusy(String mode, Connection first, Connection second, String key)
            throws SQLException {
        Handle handle = tryAcquire(first, "drivers", key);
        SQLException e = failure(second, db -> acquire(db, key, 100));
        check(ended(e, "55P03"), mode + ": a key that stays busy is SQLSTATE 55P03");
        ServerErrorMessage server = ((PSQLException) e).getServerErrorMessage();
        try (Connection judge = connect(true);
                PreparedStatement query = judge.prepareStatement("SELECT count(*)"
                    + " FROM jsonb_to_record(?::jsonb)"
                    + " AS d (namespace text, key text, attempts bigint, waited_ms bigint)"
                    + " WHERE namespace = 'drivers' AND key = ? AND attempts BETWEEN 1 AND 3"
                    + " AND waited_ms BETWEEN 0 AND 30000")) {
            query.setString(1, server.getDetail());
            query.setString(2, key);
            try (ResultSet row = query.executeQuery()) {
                row.next();
                check(row.getLong(1) == 1,
                    mode + ": its DETAIL is JSON with namespace, key, attempts and waited_ms");
            }
        }
        String shown = e.getMessage() + server.getMessage() + server.getDetail();
        check(!shown.contains(handle.owner().toString()), mode + ": and does not show the owner");
        release(first, handle);
    }

    static void transactionAfterBusy(String mode, Connection first, Connection second, String key)
            throws SQLException {
        Handle handle = tryAcquire(first, "drivers", key);
        Savepoint before = second.setSavepoint();
        failure(second, db -> acquire(db, key, 100));
        boolean aborted = ended(failure(second, db -> execute(db, "SELECT 1")), "25P02");
        second.rollback(before);
        check(aborted && number(second, "SELECT 1") == 1, mode + ": rollback to a savepoint makes"
            + " a transaction usable that found the key busy");
        failure(second, db -> acquire(db, key, 100));
        check(ended(failure(second, db -> execute(db, "SELECT 1")), "25P02"),
            mode + ": without a savepoint the transaction is aborted");
        second.rollback();
        release(first, handle);
        Handle other = acquire(second, key, 100);
        check(other.fence() > handle.fence(),
            mode + ": after rollback it can take the key, which is free now");
        release(second, other);
    }

    static void sessionAfterBusy(String mode, Connection first, Connection second, String key)
            throws SQLException {
        Handle handle = tryAcquire(first, "drivers", key);
        failure(second, db -> acquire(db, key, 100));
        boolean usable = number(second, "SELECT 1") == 1;
        release(first, handle);
        Handle other = acquire(second, key, 100);
        check(usable && other.fence() > handle.fence(),
            mode + ": the next statement works, and takes the key once it is free");
        release(second, other);
    }

    static void handedOver(String mode, Connection first, Connection second, String key)
            throws SQLException {
        Handle handle = tryAcquire(first, "drivers", key);
        try (PreparedStatement call = prepareAcquire(second)) {
            CompletableFuture<Handle> waiter = waiter(second, call, key);
            boolean released = release(first, handle);
            Handle other = waiter.join();
            check(released && other.fence() > handle.fence(),
                mode + ": a waiting call gets the key that is released, with a higher fence");
            release(second, other);
        }
    }

    static void cancelled(String mode, Connection first, Connection second, String key)
            throws SQLException {
        Handle handle = tryAcquire(first, "drivers", key);
        try (PreparedStatement call = prepareAcquire(second)) {
            CompletableFuture<Handle> waiter = waiter(second, call, key);
            call.cancel();
            Throwable e = waiter.handle((lease, error) -> error).join();
            check(e instanceof CompletionException && e.getCause() instanceof SQLException cause
                && ended(cause, "57014"), mode + ": cancel() ends a wait with 57014");
        }
        rollback(second);
        SQLException e = failure(second, db -> {
            try (PreparedStatement call = prepareAcquire(db)) {
                call.setQueryTimeout(1);
                acquire(call, key, 60_000);
            }
        });
        check(ended(e, "57014"), mode + ": and so does setQueryTimeout()");
        boolean released = release(first, handle);
        handle = tryAcquire(first, "drivers", key);
        check(released && handle != null, mode + ": and their caller holds nothing");
        release(first, handle);
    }

    static void actions(String mode, Connection first, Connection second, String key)
            throws SQLException {
        execute(first, "CREATE TEMP TABLE bill AS SELECT id, 0::bigint AS paid, '' AS note"
            + " FROM generate_series(1, 2) AS id");
        commit(first);
        String note = "'; DROP TABLE bill; -- {\"a\",\\}";
        check(executeWithLock(first, key, "UPDATE bill SET note = $1 WHERE id = $2", note, "1")
            == 1, mode + ": an action with bound arguments gives its number of rows");
        check(queryWithLock(first, key, "SELECT id, length(note) AS n FROM bill WHERE id < $1"
            + " ORDER BY 1", "3").equals(List.of("{\"n\": " + note.length() + ", \"id\": 1}",
                "{\"n\": 0, \"id\": 2}")), mode + ": a query gives its rows as JSON");
        String action = "UPDATE bill SET paid = 100 / $1";
        SQLException e = failure(first, db -> executeWithLock(db, key, action, "0"));
        Handle handle = tryAcquire(second, "drivers", key);
        check(ended(e, "22012") && handle != null,
            mode + ": an action's error is its own, and the key is free after it");
        release(second, handle);
        rollback(first);
        check(executeWithLock(first, key, action, "5") == 2, mode + ": and the next action runs");
    }

    static void waits(boolean autocommit, String run) throws SQLException {
        String mode = "autocommit " + (autocommit ? "on" : "off");
        String key = run + ":" + mode.replace(' ', '-') + ":wait";
        Part after = autocommit ? JdbcClient::sessionAfterBusy : JdbcClient::transactionAfterBusy;
        try (Connection first = connect(autocommit, 90_000);
                Connection second = connect(autocommit, 90_000)) {
            for (Part part : List.<Part>of(JdbcClient::boundedWait, JdbcClient::staysBusy, after,
                    JdbcClient::handedOver, JdbcClient::cancelled, JdbcClient::actions)) {
                part.run(mode, first, second, key);
                rollback(first);
                rollback(second);
            }
        }
    }

    static void types(String run) throws SQLException {
        String key = run + ":types";
        try (Connection db = connect(true)) {
            Handle handle = tryAcquire(db, "drivers", key);
            check(handle.namespace().equals("drivers") && handle.key().equals(key)
                && handle.coordinated(), "namespace, key and is_coordinated come back");
            check(handle.fence() > 0, "fence is a long");
            check(handle.lease().getSeconds() == 30, "lease is the PGInterval that was granted");
            OffsetDateTime now = OffsetDateTime.now();
            check(handle.leaseEnd().isAfter(now.plusSeconds(20))
                && handle.leaseEnd().isBefore(now.plusSeconds(31)),
                "lease_end is an OffsetDateTime, about one lease ahead");
            check(release(db, handle, handle.owner()), "released by UUID");
            handle = tryAcquire(db, "drivers", key);
            check(release(db, handle, handle.owner().toString()),
                "released by String, which JDBC sends as varchar");
        }
    }

    static void hashes() throws SQLException, GeneralSecurityException {
        byte[] pepper = "catalog-service-pepper".getBytes(StandardCharsets.UTF_8);
        check(keyFromSensitive("1234", null).equals("03ac674216f3e15c761ee1a5e255f067")
            && keyFromSensitive("refresh-token-value", null)
                .equals("e65009f6e0ae9fc204adcb73a208f63c")
            && keyFromSensitive("", null).equals("e3b0c44298fc1c149afbf4c8996fb924")
            && keyFromSensitive("1234", pepper).equals("4206b0e68f2edc74108d084419373455"),
            "hashes on the client are the known ones");
        int right = 0;
        byte[] secret = "\0pepper".getBytes(StandardCharsets.UTF_8);
        try (Connection db = connect(true); PreparedStatement query = db.prepareStatement(
                "SELECT hloom_key_from_sensitive(?), hloom_key_from_sensitive(?, ?)")) {
            for (String value : new String[] {"1234", "", "h\u00e9 \u65e5\u672c \ud83d\udd12"}) {
                query.setString(1, value);
                query.setString(2, value);
                query.setBytes(3, secret);
                try (ResultSet row = query.executeQuery()) {
                    row.next();
                    if (row.getString(1).equals(keyFromSensitive(value, null))
                            && row.getString(2).equals(keyFromSensitive(value, secret))) {
                        right++;
                    }
                }
            }
        }
        check(right == 3, "and those of the server");
    }

    public static void main(String[] args) throws SQLException, GeneralSecurityException {
        String run = "jdbc-" + UUID.randomUUID();
        lifecycle(true, run);
        lifecycle(false, run);
        waits(true, run);
        waits(false, run);
        types(run);
        hashes();
    }
}
