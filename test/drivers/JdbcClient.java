import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.OffsetDateTime;
import java.util.HexFormat;
import java.util.UUID;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.postgresql.util.PGInterval;

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
        // A refused attempt that waits for the other transaction would end in this timeout.
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT")
            + "/" + System.getenv("PGDATABASE") + "?user=" + System.getenv("PGUSER")
            + "&prepareThreshold=1&options=-c%20statement_timeout=1000";
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
        types(run);
        hashes();
    }
}
