import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies the records of one topic to another in transactions, until standard input ends: BROKERS INPUT OUTPUT THREADS SEED.
 *
 * Each thread is a group member and a transactional producer. Now and then it aborts a transaction and reads its records
 * again, leaves the group and joins it again, or starts with a new producer, so that the old one is fenced.
 */
public class Transform implements Runnable {
    private static volatile boolean ended;
    private final String brokers, input, output;
    private final int number;
    private final Random chance;
    private int committed, aborted, restarted;

    Transform(String[] arguments, int number) {
        brokers = arguments[0];
        input = arguments[1];
        output = arguments[2];
        this.number = number;
        chance = new Random(Long.parseLong(arguments[4]) * 1000 + number);
    }

    public static void main(String[] arguments) throws Exception {
        Thread[] threads = new Thread[Integer.parseInt(arguments[3])];
        for (int number = 0; number < threads.length; number++) {
            threads[number] = new Thread(new Transform(arguments, number));
            threads[number].setUncaughtExceptionHandler((thread, error) -> {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            });
            threads[number].start();
        }
        while (System.in.read() >= 0) { }
        ended = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    @Override
    public void run() {
        while (!ended) {
            try (var consumer = consumer(); var producer = producer()) {
                producer.initTransactions();
                consumer.subscribe(List.of(input));
                for (int loops = 20 + chance.nextInt(60); loops > 0 && !ended; loops--) {
                    transform(consumer, producer);
                }
            } catch (ProducerFencedException fenced) {
                System.out.println(number + " is fenced: " + fenced.getMessage());
            } catch (KafkaException failure) { // a new producer aborts what this one left open
                System.out.println(number + " starts again: " + failure);
            }
            restarted++;
        }
        System.out.printf("%d: %d committed, %d aborted, %d restarts%n", number, committed, aborted, restarted);
    }

    private void transform(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer) {
        var records = consumer.poll(Duration.ofMillis(200));
        if (records.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        try {
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(output, record.partition(), record.key(), record.value()));
                offsets.put(new TopicPartition(input, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (chance.nextInt(8) == 0) {
                throw new KafkaException("as planned");
            }
            producer.commitTransaction();
            committed++;
        } catch (ProducerFencedException fenced) {
            throw fenced;
        } catch (KafkaException failure) {
            if (!"as planned".equals(failure.getMessage())) {
                System.out.println(number + " aborts: " + failure);
            }
            producer.abortTransaction();
            aborted++;
            readAgain(consumer);
        }
    }

    /** Goes back to the committed offsets: the records of the aborted transaction are not written. */
    private static void readAgain(KafkaConsumer<String, String> consumer) {
        consumer.committed(consumer.assignment()).forEach((partition, offset) -> {
            if (offset == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, offset);
            }
        });
    }

    private KafkaConsumer<String, String> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", brokers);
        settings.put("group.id", input + "-transform");
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", 40);
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 500);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private KafkaProducer<String, String> producer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", brokers);
        settings.put("transactional.id", input + "-" + number);
        settings.put("transaction.timeout.ms", 20000);
        settings.put("linger.ms", 2);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }
}
