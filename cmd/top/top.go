// Package top shows a cluster and its locks in a terminal, and refreshes both.
package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
)

type options struct {
	addrs  []string
	login  client.LoginFlags
	db     int
	every  time.Duration
	filter string
	locks  bool
}

// Command returns the command that shows a cluster in a terminal.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "top [ADDR]",
		Short: "Show the nodes and the locks in the terminal, and refresh them",
		Long: `Show the nodes of the cluster and its locks in the terminal, and refresh them until
you press q. If the node that answers fails, top asks another node of the cluster.

Keys: Tab changes between nodes and locks, / sets a filter, Esc removes it, the
arrows and Page Up, Page Down, Home and End scroll, q or Ctrl-C ends.

The filter shows the rows that contain the text. For locks, top compares the text with
the key; owner:NAME selects the locks of one owner. Locks for which clients wait come
first, and then the other locks, oldest grant first. NO_COLOR in the environment turns
colors off.`,
		Example: `  holdfast top 10.0.0.1:6379 --password-file password
  holdfast top --locks --filter deploy:`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := flags.AddrArg(cmd, args)
			if err != nil {
				return err
			}
			if addr != "" {
				o.addrs = []string{addr}
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.addrs, "addr", []string{"127.0.0.1:6379"},
		"client addresses of nodes; if one does not answer, the next one is asked")
	o.login.Define(f)
	f.IntVar(&o.db, "db", 0, "number of the database whose locks are shown")
	f.DurationVar(&o.every, "interval", time.Second, "time between two requests")
	f.StringVar(&o.filter, "filter", "", "show only the rows that contain this text")
	f.BoolVar(&o.locks, "locks", false, "begin with the locks")
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	if err := terminal.CheckInterval(o.every); err != nil {
		return err
	}
	for _, addr := range o.addrs {
		if err := flags.CheckAddr(addr); err != nil {
			return fmt.Errorf("--addr %s: %w", addr, err)
		}
	}
	if len(o.addrs) == 0 {
		return errors.New("--addr is empty: name at least one node of the cluster")
	}
	login, err := o.login.Login()
	if err != nil {
		return err
	}
	out, ok := cmd.OutOrStdout().(*os.File)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		return errors.New("standard output is not a terminal: use \"holdfast status\" and \"holdfast locks\" " +
			"(both have --watch and --json)")
	}
	logging.Disable() // the screen shows the errors that go-redis would log
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fmt.Errorf("open the terminal: %w", err)
	}
	defer screen.Fini()
	src := newSource(o.addrs, login, o.db)
	follow(cmd.Context(), screen, src, newModel(o), o.every)
	return src.close()
}

// sight is the event that carries a result of source.look to the screen.
type sight struct {
	tcell.EventTime
	seen seen
}

// follow draws the model, and passes it the keys that the user presses and the
// replies of the source, until ctx ends or the user quits. One goroutine asks the
// source.
func follow(ctx context.Context, screen tcell.Screen, src *source, m *model, every time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	questions := make(chan question, 1) // the latest question
	asked := m.question
	first := asked
	wg.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		q := first
		for ctx.Err() == nil {
			if s := src.look(ctx, q); ctx.Err() == nil {
				_ = screen.PostEvent(&sight{seen: s}) // it fails if the queue is full: a later result follows
			}
			select {
			case q = <-questions:
			case <-t.C:
			case <-ctx.Done():
			}
		}
	})
	events := make(chan tcell.Event, 16)
	wg.Go(func() { screen.ChannelEvents(events, ctx.Done()) })
	for !m.quit {
		m.draw(screen)
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if e == nil { // the terminal is gone
				return
			}
			if _, resized := e.(*tcell.EventResize); resized {
				screen.Sync()
			}
			m.handle(e)
		}
		if m.question != asked {
			asked = m.question
			select {
			case <-questions:
			default:
			}
			questions <- asked
		}
	}
}
