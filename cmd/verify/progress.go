package verify

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"

	"github.com/holdfast-kv/holdfast/verify/attack"
)

// lineEvery is the time between two lines of progress if the output is not a
// terminal.
const lineEvery = 10 * time.Second

// liveProgress shows the progress of the check of a running cluster: with a bar on
// a terminal, and elsewhere with a line every lineEvery.
type liveProgress struct {
	out      io.Writer
	duration time.Duration
	last     time.Duration // elapsed time at the last line

	bar     progress.Writer // nil if the output is not a terminal
	tracker *progress.Tracker
	drawn   chan struct{} // closed when the bar's goroutine has ended
}

// showProgress begins to show the progress of a check. The caller calls stop at
// the end.
func showProgress(out io.Writer, duration time.Duration) *liveProgress {
	p := &liveProgress{out: out, duration: duration}
	if f, ok := out.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return p
	}
	p.bar = progress.NewWriter()
	p.bar.SetOutputWriter(out)
	p.bar.SetUpdateFrequency(250 * time.Millisecond)
	p.bar.SetTrackerPosition(progress.PositionRight)
	p.bar.Style().Visibility.Value = false
	p.bar.Style().Visibility.Time = false
	p.tracker = &progress.Tracker{Message: "starting clients", Total: max(duration.Milliseconds(), 1)}
	p.bar.AppendTracker(p.tracker)
	p.drawn = make(chan struct{})
	go func() {
		defer close(p.drawn)
		p.bar.Render()
	}()
	return p
}

// at shows a new state of the check.
func (p *liveProgress) at(now attack.Progress) {
	text := describe(now, p.duration)
	if p.bar != nil {
		p.tracker.UpdateMessage(text)
		p.tracker.SetValue(min(now.Took.Milliseconds(), p.tracker.Total-1)) // the value Total would end the bar
		return
	}
	if now.Checking || now.Took-p.last >= lineEvery {
		p.last = now.Took
		fmt.Fprintln(p.out, text)
	}
}

// stop ends the display.
func (p *liveProgress) stop() {
	if p.bar == nil {
		return
	}
	p.tracker.MarkAsDone()
	p.bar.Stop()
	<-p.drawn
}

// describe returns a short text about the state of a check.
func describe(now attack.Progress, duration time.Duration) string {
	if now.Checking {
		return fmt.Sprintf("%d commands; checking the history", now.Commands)
	}
	text := fmt.Sprintf("%v of %v: %d commands", now.Took.Round(time.Second), duration, now.Commands)
	if now.Leader != "" {
		text += ", " + now.Leader + " leads"
	}
	return text
}
