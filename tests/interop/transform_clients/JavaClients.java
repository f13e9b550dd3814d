import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** As librdkafka.py, with the clients of Apache Kafka. */
public final class JavaClients implements Runnable {
    private static final int ABORTED = 5;
    private static final int EMPTY = 3;
    private static final int REJOINED = 9;
    private static final AtomicBoolean ENDED = new AtomicBoolean();

    private final String bootstrap;
    private final String source;
    private final String target;
    private final String group;
    private final String batch;
    private final Map<String, Integer> did = new TreeMap<>();
    private final KafkaProducer<String, String> producer;
    private KafkaConsumer<String, String> consumer;
    private int turn;

    private JavaClients(String[] words, int number) {
        bootstrap = words[0];
        source = words[1];
        target = words[2];
        group = words[3];
        batch = words[5];
        turn = number;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", group + "-" + number);
        settings.put("linger.ms", "0");
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private void count(String what) {
        did.merge(what, 1, Integer::sum);
    }

    private void join() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", batch);
        settings.put("heartbeat.interval.ms", "300");
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(source), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(java.util.Collection<TopicPartition> partitions) {}

            @Override
            public void onPartitionsAssigned(java.util.Collection<TopicPartition> partitions) {
                count("rebalances");
            }
        });
    }

    @Override
    public void run() {
        try {
            producer.initTransactions();
            join();
            while (!ENDED.get()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    turn++;
                    move(records);
                }
            }
            consumer.close();
            producer.close();
        } catch (RuntimeException error) {
            System.out.println("fatal: " + error);
            Runtime.getRuntime().halt(1);
        }
    }

    private void move(ConsumerRecords<String, String> records) {
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
                offsets.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            if (turn % ABORTED == 0) {
                producer.flush();
                abort("aborts");
                return;
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            again(producer::commitTransaction);
            count("commits");
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException
                | InvalidTxnStateException error) {
            throw error;
        } catch (KafkaException error) {
            abort("refused");
            return;
        }
        if (turn % EMPTY == 0) {
            producer.beginTransaction();
            if (turn % 2 == 0) {
                // Begun before the markers of the one before are written, and given up at once.
                producer.send(new ProducerRecord<>(target, 0, null, "never"));
            }
            again(producer::abortTransaction);
            count("empty aborts");
        }
        if (turn % REJOINED == 0) {
            consumer.close();
            join();
        }
    }

    private void abort(String why) {
        again(producer::abortTransaction);
        count(why);
        Map<TopicPartition, OffsetAndMetadata> kept = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata found = kept.get(partition);
            consumer.seek(partition, found == null ? 0 : found.offset());
        }
    }

    private static void again(Runnable work) {
        while (true) {
            try {
                work.run();
                return;
            } catch (TimeoutException error) {
                // Asked again, it goes on where it was.
            }
        }
    }

    /** Arguments: BOOTSTRAP SOURCE TARGET GROUP CLIENTS BATCH. */
    public static void main(String[] words) throws Exception {
        List<JavaClients> clients = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(words[4]); number++) {
            JavaClients client = new JavaClients(words, number);
            clients.add(client);
            threads.add(new Thread(client));
        }
        threads.forEach(Thread::start);
        while (System.in.read() >= 0) {
            // Works until the input ends.
        }
        ENDED.set(true);
        Map<String, Integer> total = new TreeMap<>();
        for (int number = 0; number < clients.size(); number++) {
            threads.get(number).join();
            clients.get(number).did.forEach((what, times) -> total.merge(what, times, Integer::sum));
        }
        StringBuilder text = new StringBuilder();
        total.forEach((what, times) -> text.append(text.isEmpty() ? "" : ", ").append('"').append(what).append("\": ").append(times));
        System.out.println("{" + text + "}");
    }
}
