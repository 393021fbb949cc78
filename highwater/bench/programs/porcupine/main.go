// Checks a history of a partitioned log with Porcupine, all partitions in parallel: what the auditor is compared with.
//
// A line is one operation: client, partition, when it was called and returned, the offset of an append or -1, and
// the end that a look at the log reported. The state is the length of the log; an append's offset must equal it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	partition   int
	offset, end int64
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		partitions := map[int][]porcupine.Operation{}
		for _, call := range history {
			of := call.Input.(operation).partition
			partitions[of] = append(partitions[of], call)
		}
		parts := make([][]porcupine.Operation, 0, len(partitions))
		for _, part := range partitions {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return int64(0) },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		length, op := state.(int64), input.(operation)
		if op.offset >= 0 {
			return op.offset == length, length + 1
		}
		return op.end == length, length
	},
}

func main() {
	limit, err := time.ParseDuration(os.Args[1])
	if err != nil {
		panic(err)
	}
	var history []porcupine.Operation
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var client int
		var called, returned int64
		var op operation
		if _, err := fmt.Sscan(
			lines.Text(), &client, &op.partition, &called, &returned, &op.offset, &op.end); err != nil {
			panic(err)
		}
		history = append(history, porcupine.Operation{ClientId: client, Input: op, Call: called, Return: returned})
	}
	started := time.Now()
	verdict := porcupine.CheckOperationsTimeout(model, history, limit)
	fmt.Printf("%s %.3f\n", verdict, time.Since(started).Seconds())
}
