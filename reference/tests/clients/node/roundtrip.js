// A round trip with kafkajs: its own codecs, idempotent and not, a transaction, and a group that commits.
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const [brokers, topic] = process.argv.slice(2)
const RECORDS = 20
const kafka = new Kafka({ clientId: 'highwater', brokers: brokers.split(','), logLevel: logLevel.ERROR })
const messages = (prefix) => Array.from({ length: RECORDS }, (_, number) => ({ value: `${prefix} ${number}` }))

async function produce(prefix, options = {}, compression = CompressionTypes.None) {
  const producer = kafka.producer(options)
  await producer.connect()
  await producer.send({ topic, acks: -1, compression, messages: messages(prefix) })
  await producer.disconnect()
}

async function transact(prefix, end) {
  const producer = kafka.producer({ transactionalId: topic + prefix, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  const transaction = await producer.transaction()
  await transaction.send({ topic, messages: messages(prefix) })
  await transaction[end]()
  await producer.disconnect()
}

async function consume(want) {
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let seen = 0
  await new Promise((resolve, reject) => {
    consumer.on('consumer.crash', ({ payload }) => reject(payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        console.log(message.value.toString())
        seen += 1
        if (seen === want) {
          const offset = (BigInt(message.offset) + 1n).toString()
          await consumer.commitOffsets([{ topic, partition, offset }])
          resolve()
        }
      },
    }).catch(reject)
  })
  await consumer.disconnect()
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 3 }] })
  await produce('none')
  await produce('gzip', {}, CompressionTypes.GZIP)
  await produce('idempotent', { idempotent: true, maxInFlightRequests: 1 })
  await transact('committed', 'commit')
  await transact('aborted', 'abort')
  await produce('last')
  await consume(5 * RECORDS)
  const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
  console.error(`committed ${partitions[0].offset}`)
  await admin.disconnect()
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })
