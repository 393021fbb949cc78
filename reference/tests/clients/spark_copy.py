"""Write, read and copy records with Spark's Kafka source and sink: JARS BROKERS FIRST SECOND CHECKPOINT COUNT.

Prints count and sum of the values read as a batch, and of those that a stream copied to the second topic.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

STEP_TIMEOUT_S = 120


def main(jars: str, brokers: str, first: str, second: str, checkpoint: str, count: int) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    servers = {"kafka.bootstrap.servers": brokers}

    def show(topic: str) -> None:
        frame: DataFrame = spark.read.format("kafka").options(**servers).option("subscribe", topic).load()
        values = frame.selectExpr("cast(cast(value as string) as int) as value")
        print(topic, *values.selectExpr("count(value)", "sum(value)", "count(distinct value)").collect()[0])

    keyed = spark.range(count).selectExpr("cast(id % 10 as string) as key", "cast(id as string) as value")
    keyed.write.format("kafka").options(**servers).option("topic", first).save()
    show(first)
    source = spark.readStream.format("kafka").options(**servers).option("subscribe", first)
    stream = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", count // 4).load()
    sink = stream.select("key", "value").writeStream.format("kafka").options(**servers).option("topic", second)
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(STEP_TIMEOUT_S):
        sys.exit("the stream did not end")
    show(second)
    spark.stop()


if __name__ == "__main__":
    jars, brokers, first, second, checkpoint, count = sys.argv[1:]
    main(jars, brokers, first, second, checkpoint, int(count))
