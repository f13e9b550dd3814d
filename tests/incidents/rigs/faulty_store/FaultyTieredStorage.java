import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;

import org.apache.kafka.server.log.remote.storage.LocalTieredStorage;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/**
 * Kafka's LocalTieredStorage with the faults of tests/incidents: before each call it reads a file of properties
 * (fault, topic, delay.ms), which the test writes. Without the file it does as LocalTieredStorage.
 */
public final class FaultyTieredStorage implements RemoteStorageManager {
    private static final long LOOK_MS = 100;

    private final LocalTieredStorage store = new LocalTieredStorage();
    private Path faults;

    @Override
    public void configure(Map<String, ?> configs) {
        faults = Path.of(String.valueOf(configs.get("faults")));
        store.configure(configs);
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata metadata, LogSegmentData data)
            throws RemoteStorageException {
        meet("writes", metadata);
        return store.copyLogSegmentData(metadata, data);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int start) throws RemoteStorageException {
        meet("reads", metadata);
        return store.fetchLogSegment(metadata, start);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int start, int end)
            throws RemoteStorageException {
        meet("reads", metadata);
        return store.fetchLogSegment(metadata, start, end);
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata metadata, IndexType type) throws RemoteStorageException {
        meet("reads", metadata);
        return store.fetchIndex(metadata, type);
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata metadata) throws RemoteStorageException {
        meet("deletes", metadata);
        store.deleteLogSegmentData(metadata);
    }

    @Override
    public void close() throws IOException {
        store.close();
    }

    private void meet(String call, RemoteLogSegmentMetadata metadata) throws RemoteStorageException {
        Properties now = read();
        String fault = now.getProperty("fault", "none");
        if (!metadata.topicIdPartition().topic().contains(now.getProperty("topic", ""))) {
            return;
        }
        boolean refused = fault.equals("away")
                || fault.startsWith("refuse-writes") && call.equals("writes")
                || fault.equals("refuse-writes-and-deletes") && call.equals("deletes")
                || fault.equals("refuse-deletes") && call.equals("deletes")
                || fault.equals("refuse-reads") && call.equals("reads");
        if (refused) {
            throw new RemoteStorageException("Access denied: the store refuses " + call + " of "
                    + metadata.topicIdPartition().topicPartition());
        }
        if (fault.equals("slow-" + call)) {
            pause(Long.parseLong(now.getProperty("delay.ms", "0")));
        }
        while (fault.equals("hang-" + call)) {
            pause(LOOK_MS);
            fault = read().getProperty("fault", "none");
        }
    }

    private Properties read() {
        Properties result = new Properties();
        try (InputStream file = Files.newInputStream(faults)) {
            result.load(file);
        } catch (IOException none) {
            result.clear();
        }
        return result;
    }

    private static void pause(long milliseconds) throws RemoteStorageException {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new RemoteStorageException("interrupted while the store took its time", stopped);
        }
    }
}
