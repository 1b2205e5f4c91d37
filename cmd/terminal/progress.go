package terminal

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/docker/go-units"
	"golang.org/x/term"
)

// Progress reports the progress of a transfer. The first report comes one second
// after the start. On a terminal, Progress rewrites one line; elsewhere, it prints
// a line every five seconds.
type Progress struct {
	out      io.Writer
	terminal bool
	what     string
	total    int64 // bytes or units, 0 if unknown
	unit     string
	earlier  int64 // bytes or units that an earlier transfer has done
	begun    time.Time
	last     time.Time
	shown    bool
}

// NewProgress returns the Progress of a transfer that begins now. total is the
// number of bytes of the transfer, or 0 if it is unknown. Each report begins
// with the argument what.
func NewProgress(out io.Writer, what string, total int64) *Progress {
	f, ok := out.(*os.File)
	return &Progress{
		out: out, terminal: ok && term.IsTerminal(int(f.Fd())), what: what, total: total, begun: time.Now(),
	}
}

// NewCount is like NewProgress, for a transfer that is counted in units such as
// "keys".
func NewCount(out io.Writer, what, unit string) *Progress {
	p := NewProgress(out, what, 0)
	p.unit = unit
	return p
}

// SetTotal sets how many bytes or units the transfer has, 0 if unknown.
func (p *Progress) SetTotal(total int64) { p.total = total }

// SetEarlier sets how many bytes or units an earlier, interrupted transfer has
// done. The printed speed does not include them.
func (p *Progress) SetEarlier(n int64) { p.earlier = n }

// At reports that n bytes or units are done.
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
	line := p.what + ": " + p.size(float64(n))
	if p.total > 0 {
		line += fmt.Sprintf(" of %s (%d %%)", p.size(float64(p.total)), n*100/p.total)
	}
	line += fmt.Sprintf(", %s/s, %v", p.size(float64(n-p.earlier)/took.Seconds()), took.Round(100*time.Millisecond))
	if p.terminal {
		fmt.Fprintf(p.out, "\r%s\x1b[K", line)
	} else {
		fmt.Fprintln(p.out, line)
	}
}

// size returns the text for a number of bytes or units.
func (p *Progress) size(n float64) string {
	if p.unit == "" {
		return units.BytesSize(n)
	}
	return fmt.Sprintf("%.0f %s", n, p.unit)
}
