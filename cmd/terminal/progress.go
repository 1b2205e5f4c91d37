package terminal

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/docker/go-units"
	"golang.org/x/term"
)

// Progress reports how far a transfer is, from one second after its start: on a
// terminal in one line that it rewrites, and elsewhere as a line every five
// seconds.
type Progress struct {
	out      io.Writer
	terminal bool
	what     string
	total    int64 // bytes, 0 if unknown
	begun    time.Time
	last     time.Time
	shown    bool
}

// NewProgress returns the progress of a transfer of total bytes, 0 if unknown,
// which begins now. what is printed in front of each number of bytes.
func NewProgress(out io.Writer, what string, total int64) *Progress {
	f, ok := out.(*os.File)
	return &Progress{
		out: out, terminal: ok && term.IsTerminal(int(f.Fd())), what: what, total: total, begun: time.Now(),
	}
}

// At reports that n bytes are done.
func (p *Progress) At(n int64) {
	now := time.Now()
	every := 5 * time.Second
	if p.terminal {
		every = 200 * time.Millisecond
	}
	if now.Sub(p.begun) < time.Second || now.Sub(p.last) < every {
		return
	}
	p.last, p.shown = now, true
	p.print(n, now)
}

// Done reports the end, if the transfer took longer than a second.
func (p *Progress) Done(n int64) {
	if now := time.Now(); p.shown || now.Sub(p.begun) >= time.Second {
		p.print(n, now)
		if p.terminal {
			fmt.Fprintln(p.out)
		}
	}
}

func (p *Progress) print(n int64, now time.Time) {
	took := now.Sub(p.begun)
	line := fmt.Sprintf("%s: %s", p.what, units.BytesSize(float64(n)))
	if p.total > 0 {
		line += fmt.Sprintf(" of %s (%d %%)", units.BytesSize(float64(p.total)), n*100/p.total)
	}
	line += fmt.Sprintf(", %s/s, %v", units.BytesSize(float64(n)/took.Seconds()), took.Round(100*time.Millisecond))
	if p.terminal {
		fmt.Fprintf(p.out, "\r%s\x1b[K", line)
	} else {
		fmt.Fprintln(p.out, line)
	}
}
