package locking

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/lock"
	"github.com/holdfast-kv/holdfast/lock/listing"
)

// historyOptions holds the flags of "holdfast locks history".
type historyOptions struct {
	locksOptions
	at, from, to string
	count        int
}

func historyCommand() *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:   "history KEY",
		Short: "Show who held a lock in the past, and how each grant ended",
		Long: `Show the past grants of a lock, newest first: the owner, the client, when the grant
began and ended, how long the owner had waited, and how the grant ended. Every node
keeps this history in files of its own (--lock-history-size of "holdfast serve"); the
node that you ask answers from its files.

A time is a time of day (14:03:07, the last one before now), a day with a time of day
("2026-11-26 14:03:07"), both in the time zone of this machine, a time in RFC 3339
(2026-11-26T14:03:07Z), or milliseconds since 1970.`,
		Example: `  holdfast locks history deploy --at 14:03:07
  holdfast locks history deploy --from '2026-11-26 14:00:00' --to '2026-11-26 15:00:00'
  holdfast locks history deploy --count 10 --watch
  holdfast locks history deploy --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := o.request(args[0], time.Now())
			if err != nil {
				return err
			}
			return o.show(cmd, func(ctx context.Context, nodes *lock.Nodes, out io.Writer) error {
				reply, err := nodes.Do(ctx, request...).Result()
				if err != nil {
					return explain(err)
				}
				d, err := listing.Describe(reply)
				switch {
				case err != nil:
					return err
				case o.asJSON:
					return terminal.PrintJSON(out, d)
				}
				return printHistory(out, d)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.at, "at", "", "show only who held the lock at this time")
	f.StringVar(&o.from, "from", "", "show only grants that had not ended by this time")
	f.StringVar(&o.to, "to", "", "show only grants that had begun by this time")
	f.IntVar(&o.count, "count", 100, "show at most this many grants, up to 1000")
	cmd.MarkFlagsMutuallyExclusive("at", "from")
	cmd.MarkFlagsMutuallyExclusive("at", "to")
	o.defineOutput(cmd)
	return cmd
}

// request returns the name and the arguments of LOCK HISTORY.
func (o *historyOptions) request(key string, now time.Time) ([]any, error) {
	words := []any{"LOCK", "HISTORY", key, "COUNT", o.count}
	for _, b := range []struct {
		flag, text, word string
		last             bool
	}{
		{"at", o.at, "FROM", false}, {"at", o.at, "TO", true},
		{"from", o.from, "FROM", false}, {"to", o.to, "TO", true},
	} {
		if b.text == "" {
			continue
		}
		t, err := parseTime(b.text, now)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", b.flag, err)
		}
		if b.last && t.Nanosecond() == 0 { // the time has no fraction, so it means the whole second
			t = t.Add(time.Second - time.Millisecond)
		}
		words = append(words, b.word, t.UnixMilli())
	}
	return words, nil
}

// parseTime parses a time of a flag. A time of day means its last occurrence before now.
func parseTime(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 {
		return time.UnixMilli(ms), nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		clock, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		on := func(day time.Time) time.Time {
			return time.Date(day.Year(), day.Month(), day.Day(), clock.Hour(), clock.Minute(), clock.Second(),
				clock.Nanosecond(), now.Location())
		}
		t := on(now)
		if t.After(now) {
			t = on(now.AddDate(0, 0, -1))
		}
		return t, nil
	}
	return time.Time{}, errors.New(strconv.Quote(text) +
		` is not a time such as 14:03:07, "2026-11-26 14:03:07" or 2026-11-26T14:03:07Z`)
}

// moment returns the time in a field of d, which is in milliseconds since 1970, as
// a text. If there is no such field, it returns the argument absent.
func moment(d listing.Lock, name, absent string) string {
	ms := d.Int(name)
	if ms == 0 {
		return absent
	}
	return time.UnixMilli(ms).Format("2006-01-02 15:04:05.000")
}

func printHistory(out io.Writer, d listing.Lock) error {
	var b strings.Builder
	grants, _ := d["grants"].([]listing.Lock)
	if len(grants) == 0 {
		fmt.Fprintf(&b, "no grant of %s is known\n", terminal.Shown(d.Text("key")))
	} else {
		t := terminal.NewTable("ACQUIRED", "ENDED", "HELD", "HOW", "OWNER", "TOKEN", "MODE", "WAITED", "CLIENT", "META")
		for _, g := range grants {
			how := g.Text("how")
			if by := g.Text("ended-by-node"); by != "" {
				how += fmt.Sprintf(" (client %d at %s)", g.Int("ended-by-client-id"), by)
			}
			t.AppendRow(table.Row{moment(g, "acquired-ms", "?"), moment(g, "ended-ms", "-"), ms(g, "held-ms"), how,
				terminal.Shown(g.Text("owner")), g.Int("token"), g.Mode(), ms(g, "waited-ms"), clientOf(g), meta(g)})
		}
		b.WriteString(t.Render() + "\n")
	}
	if d.Int("since-ms") != 0 {
		fmt.Fprintf(&b, "the history before %s was removed\n", moment(d, "since-ms", ""))
	}
	gaps, _ := d["gaps"].([]listing.Lock)
	for _, g := range gaps {
		fmt.Fprintf(&b, "this node has no history from %s to %s: ask another node\n",
			moment(g, "from-ms", "the beginning"), moment(g, "to-ms", "?"))
	}
	_, err := io.WriteString(out, b.String())
	return err
}
