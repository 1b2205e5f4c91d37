package neighbor

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// readLoads contains reads that take long.
var readLoads = []Load{
	{Name: "LCS behind a write", workers: 1, prepare: writePair(leftKey, rightKey, 4000), attack: pipelineOfLCS(false)},
	{Name: "LCS in a transaction", workers: 1, prepare: writePair(leftKey, rightKey, 4000),
		attack: pipelineOfLCS(true)},
	{Name: "LCS LEN by many clients", workers: 60, prepare: writePair(longLeft, longRight, 4000), attack: lengthOfLCS},
	{Name: "SINTERCARD of large sets", workers: 20, prepare: writeSets(300_000), attack: intersect},
	{Name: "BITCOUNT in a pipeline", workers: 1, prepare: writeLarge(largeKey, 8<<20), attack: countBits(300)},
}

// slowLimit is how long a worker waits for the replies of one attack.
const slowLimit = 60 * time.Second

// writePair writes two strings of size bytes that have little in common. The
// scale does not divide size, because size determines the cost of one read.
func writePair(left, right string, size int) func(ctx context.Context, t *target) error {
	return func(ctx context.Context, t *target) error {
		c, err := t.client(ctx, prepareLimit)
		if err != nil {
			return err
		}
		defer c.Close()
		rng := rand.New(rand.NewPCG(1, 2))
		for _, name := range []string{left, right} {
			text := make([]byte, size)
			for i := range text {
				text[i] = byte('a' + rng.IntN(20))
			}
			if _, err := c.do("SET", t.key(name), string(text)); err != nil {
				return err
			}
		}
		return nil
	}
}

// pipelineOfLCS sends a write and 150 slow reads after it.
func pipelineOfLCS(transaction bool) func(ctx context.Context, t *target, worker int) error {
	return func(ctx context.Context, t *target, _ int) error {
		c, err := t.client(ctx, slowLimit)
		if err != nil {
			return err
		}
		defer c.Close()
		cmds := [][]string{{"SET", t.key(writtenKey), "1"}}
		for range 150 {
			cmds = append(cmds, []string{"LCS", t.key(leftKey), t.key(rightKey)})
		}
		if transaction {
			cmds = append(append([][]string{{"MULTI"}}, cmds...), []string{"EXEC"})
		}
		return c.pipeline(cmds)
	}
}

func lengthOfLCS(ctx context.Context, t *target, _ int) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.do("LCS", t.key(longLeft), t.key(longRight), "LEN")
	return err
}

// writeSets writes two sets. One third of the members of each is in both.
func writeSets(members int) func(ctx context.Context, t *target) error {
	return func(ctx context.Context, t *target) error {
		c, err := t.client(ctx, prepareLimit)
		if err != nil {
			return err
		}
		defer c.Close()
		for i, name := range []string{firstSet, secondSet} {
			from := i * t.size(members) * 2 / 3
			var numbers []string
			for n := range t.size(members) {
				numbers = append(numbers, strconv.Itoa(from+n))
			}
			for part := range slices.Chunk(numbers, 3000) {
				if _, err := c.do(append([]string{"SADD", t.key(name)}, part...)...); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func intersect(ctx context.Context, t *target, _ int) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.do("SINTERCARD", "2", t.key(firstSet), t.key(secondSet))
	return err
}

func countBits(count int) func(ctx context.Context, t *target, worker int) error {
	return func(ctx context.Context, t *target, _ int) error {
		c, err := t.client(ctx, slowLimit)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.pipeline(slices.Repeat([][]string{{"BITCOUNT", t.key(largeKey)}}, count))
	}
}
