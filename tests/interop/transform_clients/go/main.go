// As librdkafka.py, with the clients of franz-go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	aborted  = 5
	empty    = 3
	rejoined = 9
)

type counts struct {
	sync.Mutex
	did map[string]int
}

func (c *counts) count(what string) {
	c.Lock()
	defer c.Unlock()
	c.did[what]++
}

func session(words []string, number int, total *counts) (*kgo.GroupTransactSession, error) {
	return kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(words[0], ",")...),
		kgo.ConsumeTopics(words[1]),
		kgo.DefaultProduceTopic(words[2]),
		kgo.ConsumerGroup(words[3]),
		kgo.TransactionalID(fmt.Sprintf("%s-%d", words[3], number)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { total.count("rebalances") }),
	)
}

func work(ctx context.Context, words []string, number, batch int, total *counts) error {
	sess, err := session(words, number, total)
	if err != nil {
		return err
	}
	defer func() { sess.Close() }()
	for turn := number; ; {
		polling, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := sess.PollRecords(polling, batch)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		turn++
		if err := sess.Begin(); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		var first kgo.FirstErrPromise
		for _, record := range records {
			out := &kgo.Record{Value: record.Value, Partition: record.Partition}
			sess.Produce(context.Background(), out, first.Promise())
		}
		try := kgo.TransactionEndTry(first.Err() == nil && turn%aborted != 0)
		committed, err := sess.End(context.Background(), try)
		switch {
		case err != nil:
			return fmt.Errorf("end: %w", err)
		case committed:
			total.count("commits")
		case turn%aborted == 0:
			total.count("aborts")
			continue
		default:
			total.count("refused")
			continue
		}
		if turn%empty == 0 {
			if err := sess.Begin(); err != nil {
				return fmt.Errorf("begin of nothing: %w", err)
			}
			// Begun before the markers of the one before are written, and given up at once.
			sess.Produce(context.Background(), &kgo.Record{Value: []byte("never")}, nil)
			if _, err := sess.End(context.Background(), kgo.TryAbort); err != nil {
				return fmt.Errorf("abort of nothing: %w", err)
			}
			total.count("empty aborts")
		}
		if turn%rejoined == 0 {
			sess.Close()
			if sess, err = session(words, number, total); err != nil {
				return err
			}
		}
	}
}

// Arguments: BOOTSTRAP SOURCE TARGET GROUP CLIENTS BATCH.
func main() {
	words := os.Args[1:]
	clients, err := strconv.Atoi(words[4])
	batch, wrong := strconv.Atoi(words[5])
	if err = errors.Join(err, wrong); err != nil {
		fmt.Println("fatal:", err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	total := &counts{did: map[string]int{}}
	var running sync.WaitGroup
	for number := range clients {
		running.Add(1)
		go func() {
			defer running.Done()
			if err := work(ctx, words, number, batch, total); err != nil {
				fmt.Println("fatal:", err)
				os.Exit(1)
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	running.Wait()
	text, _ := json.Marshal(total.did)
	fmt.Println(string(text))
}
