// A round trip with franz-go: every codec, idempotent and not, a transaction, by assignment and in a group.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const records = 20

var (
	brokers = kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	topic   = os.Args[2]
)

func check(err error, what string) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(1)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, brokers)...)
	check(err, "client")
	return made
}

func create(ctx context.Context) {
	admin := client()
	defer admin.Close()
	asked := kmsg.NewCreateTopicsRequestTopic()
	asked.Topic, asked.NumPartitions, asked.ReplicationFactor = topic, 1, 3
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics, request.TimeoutMillis = append(request.Topics, asked), 20000
	_, err := request.RequestWith(ctx, admin)
	check(err, "create")
}

func produce(ctx context.Context, prefix string, options ...kgo.Opt) {
	producer := client(append(options, kgo.DefaultProduceTopic(topic))...)
	defer producer.Close()
	for number := range records {
		value := []byte(fmt.Sprintf("%s %d", prefix, number))
		check(producer.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(), prefix)
	}
}

func transact(ctx context.Context, prefix string, end kgo.TransactionEndTry) {
	producer := client(kgo.DefaultProduceTopic(topic), kgo.TransactionalID(topic+prefix))
	defer producer.Close()
	check(producer.BeginTransaction(), "begin")
	for number := range records {
		value := []byte(fmt.Sprintf("%s %d", prefix, number))
		check(producer.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(), prefix)
	}
	check(producer.EndTransaction(ctx, end), "end")
}

func consume(ctx context.Context, want int, commit bool, options ...kgo.Opt) {
	consumer := client(append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	defer consumer.Close()
	for seen := 0; seen < want; {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err(), "poll")
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			seen++
		})
	}
	if commit {
		check(consumer.CommitUncommittedOffsets(ctx), "commit")
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	create(ctx)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		produce(ctx, name, kgo.ProducerBatchCompression(codecs[name]))
	}
	produce(ctx, "plain", kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	transact(ctx, "committed", kgo.TryCommit)
	transact(ctx, "aborted", kgo.TryAbort)
	produce(ctx, "last")
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	consume(ctx, 8*records, false, kgo.ConsumePartitions(start))
	group := []kgo.Opt{kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit()}
	consume(ctx, 8*records, true, append(group, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
}
