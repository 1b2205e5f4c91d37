package neighbor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// scriptLoads contains loads of scripts that take long, are large, or write to
// the node's log output, and of many quick scripts in a pipeline.
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

// pipelineOfScripts runs a script 200 times. Each run takes a fraction of a
// millisecond.
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

// loadScripts loads 150 new scripts. A third of them have 250 kB and consist of one
// string, which takes a millisecond to compile. The others are 125 kB of code,
// which takes hundreds of milliseconds. Half of these do not compile, because of
// an error in the last line. Then loadScripts sends a transaction: a script that
// does not end, and after it commands that load scripts of code.
func loadScripts(ctx context.Context, t *target, _ int) error {
	c, err := t.client(ctx, slowLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	const size = 250_000
	line := "x.a = x.b + y * (z - 1) if x.a > 3 then y = {x, y; z} end\n"
	code := strings.Repeat(line, size/2/len(line))
	round := t.rounds.Load()
	large := func(i int) string { return fmt.Sprintf("local x, y, z = {}, %d, %d do\n%s end", round, i, code) }
	for i := range t.size(150) {
		text := fmt.Sprintf("return '%d:%d:%s'", round, i, strings.Repeat("x", size))
		if i%3 > 0 {
			text = large(i)
		}
		if i%3 == 2 {
			text += " end"
		}
		_, err := c.do("SCRIPT", "LOAD", text)
		if i%3 == 2 && err != nil && strings.Contains(err.Error(), "Error compiling script") {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	transaction := [][]string{{"MULTI"}, {"EVAL", "while true do end", "0"}}
	for i := range t.size(50) {
		transaction = append(transaction, []string{"SCRIPT", "LOAD", large(-i)})
	}
	return c.pipeline(append(transaction, []string{"EXEC"}))
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
