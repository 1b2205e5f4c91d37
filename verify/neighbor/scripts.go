package neighbor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// scriptLoads contains scripts that take long, are large, or write to the
// node's log output.
var scriptLoads = []Load{
	{Name: "slow scripts", workers: 25, attack: slowScript},
	{Name: "large scripts loaded", workers: 1, attack: loadScripts},
	{Name: "scripts that log", workers: 2, attack: logMuch},
	{Name: "quick scripts in a pipeline", workers: 2, attack: pipelineOfScripts},
}

// slowScript runs a loop that takes a large part of the script budget.
func slowScript(ctx context.Context, t *target, worker int) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.do("EVAL", fmt.Sprintf("local n = %d for i = 1, 3000000 do n = n + i %% 7 end return "+
		"redis.call('SET', KEYS[1], n)", worker), "1", t.key(writtenKey))
	return err
}

// pipelineOfScripts runs 200 scripts that take a fraction of a millisecond each.
func pipelineOfScripts(ctx context.Context, t *target, worker int) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	text := fmt.Sprintf("local n = %d for i = 1, 10000 do n = n + i %% 7 end return redis.call('SET', KEYS[1], n)",
		worker)
	return c.pipeline(slices.Repeat([][]string{{"EVAL", text, "1", t.key(writtenKey)}}, 200))
}

// loadScripts loads 150 new scripts of 250 kB each.
func loadScripts(ctx context.Context, t *target, _ int) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	round := t.rounds.Load()
	for i := range t.size(150) {
		text := fmt.Sprintf("return '%d:%d:%s'", round, i, strings.Repeat("x", 250_000))
		if _, err := c.do("SCRIPT", "LOAD", text); err != nil {
			return err
		}
	}
	return nil
}

// logMuch writes 12 MB, with line breaks and escape sequences, to the node's
// log output.
func logMuch(ctx context.Context, t *target, _ int) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.do("EVAL",
		`local line = string.rep('forged\n\27[31m', 100)
		for i = 1, 10000 do redis.log(redis.LOG_WARNING, line) end return 1`, "0")
	return err
}
