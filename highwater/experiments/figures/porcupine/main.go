// Checks a history of a partitioned log with Porcupine, which the auditor is compared with: all partitions in parallel,
// or with a second argument one after the other, which needs less memory.
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
	started, verdict, parts := time.Now(), porcupine.Ok, [][]porcupine.Operation{history}
	if len(os.Args) > 2 {
		parts = model.Partition(history)
	}
	for _, part := range parts {
		if verdict = porcupine.CheckOperationsTimeout(model, part, limit-time.Since(started)); verdict != porcupine.Ok {
			break
		}
	}
	fmt.Printf("%s %.3f\n", verdict, time.Since(started).Seconds())
}
