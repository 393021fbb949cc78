// kfake as a process: prints "ready ADDRESS,..." and serves until its input ends.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	ports := make([]int, 0, len(os.Args)-1)
	for _, argument := range os.Args[1:] {
		port, err := strconv.Atoi(argument)
		if err != nil {
			fail(err)
		}
		ports = append(ports, port)
	}
	cluster, err := kfake.NewCluster(
		kfake.Ports(ports...),
		kfake.DefaultNumPartitions(1),
		kfake.AllowAutoTopicCreation(),
		kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "500"}),
	)
	if err != nil {
		fail(err)
	}
	defer cluster.Close()
	if folder := os.Getenv("HIGHWATER_COVERAGE"); folder != "" {
		if err := serveCoverage(folder); err != nil {
			fail(err)
		}
	}
	fmt.Println("ready", strings.Join(cluster.ListenAddrs(), ","))
	io.Copy(io.Discard, os.Stdin)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
