// Three transactions of one producer: committed, aborted, committed.  Then everything that is committed is read.
//
// Run it under the faults of fuzz/schedules/late_commit.json: the request that commits the first transaction is kept back,
// and arrives while the second one is open.  $BOOTSTRAP is the address of the cluster.  The argument, if there is one,
// distinguishes the topic and the transactional id from those of other runs.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class LateCommit {
    static final int LATE_MS = 3_000;
    static String topic = "accounts";

    public static void main(String[] arguments) throws Exception {
        topic += String.join("", arguments);
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", System.getenv("BOOTSTRAP")));
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(2), Optional.empty()))).all().get();
        }
        write(settings);
        System.out.println("committed: " + read(settings));
    }

    static void write(Map<String, Object> settings) throws Exception {
        Map<String, Object> transactional = new HashMap<>(settings);
        transactional.putAll(Map.of("transactional.id", "pay-" + topic, "client.id", "pay", "linger.ms", 0));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(transactional, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, 0, "first, debit");
            send(producer, 1, "first, credit");
            producer.commitTransaction();

            producer.beginTransaction();
            send(producer, 0, "second, debit");
            Thread.sleep(LATE_MS);                 // the commit of the first transaction arrives now
            String ended;
            try {
                send(producer, 1, "second, credit");
                producer.abortTransaction();
                ended = "aborted";
            } catch (Exception failed) {
                ended = "failed: " + failed;
            }
            System.out.println("second transaction: " + ended);
        }
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(transactional, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, 0, "last, debit");
            send(producer, 1, "last, credit");
            producer.commitTransaction();
        }
    }

    static void send(KafkaProducer<String, String> producer, int partition, String value) throws Exception {
        producer.send(new ProducerRecord<>(topic, partition, null, value)).get();
    }

    static Map<Integer, List<String>> read(Map<String, Object> settings) {
        Map<String, Object> committed = new HashMap<>(settings);
        committed.putAll(Map.of("isolation.level", "read_committed", "auto.offset.reset", "earliest"));
        Map<Integer, List<String>> found = new TreeMap<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(committed, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            consumer.assign(partitions);
            int last = 0;
            long end = System.currentTimeMillis() + 30_000;
            while (last < partitions.size() && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    found.computeIfAbsent(record.partition(), key -> new java.util.ArrayList<>()).add(record.value());
                    last += record.value().startsWith("last") ? 1 : 0;
                }
            }
        }
        return found;
    }
}
