package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// calls are the system calls that are recorded: those that can open, position,
// change, sync or close a file, and those by which a node answers clients.
const calls = "open,openat,openat2,creat,write,writev,pwrite64,pwritev,pwritev2,lseek," +
	"fsync,fdatasync,sync_file_range,sync,syncfs,msync," +
	"truncate,ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat," +
	"rmdir,mkdir,mkdirat,link,linkat,symlink,symlinkat," +
	"copy_file_range,sendfile,splice,mmap,close"

// call is one system call of a node.
type call struct {
	name string
	args []string // as strace prints them
	ret  string   // "" if the process died before the call returned
}

// step is the beginning or the end of a call. Between the two, the call may
// have had its effect or not.
type step struct {
	at   time.Duration // on the machine's clock
	call *call
	end  bool
}

// readTrace reads the file that strace wrote about one process. killed is the
// time of the SIGKILL to the process since the Unix epoch, or 0 if there was
// none. From that time on, strace may print the result of another call (see
// phantom), so the outcome of a call counts as unknown. ended reports whether
// the trace contains the end of the process, and so is complete.
func readTrace(path string, killed time.Duration) (steps []step, ended bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	open := make(map[string]string) // calls that have begun, by thread: the text printed so far
	begun := make(map[string]*call)
	threads := make(map[string]bool)
	made := make(map[*call]string) // the thread that made each call
	returned := func(at time.Duration, c *call) {
		if killed > 0 && at >= killed {
			c.ret = ""
		}
		if c.ret != "" {
			steps = append(steps, step{at, c, true})
		}
	}
	for r := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, err
		}
		thread, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		stamp, text, ok := strings.Cut(strings.TrimLeft(rest, " "), " ")
		seconds, err := strconv.ParseFloat(stamp, 64)
		if !ok || err != nil {
			return nil, false, fmt.Errorf("%s: the line %.100q is not supported", path, line)
		}
		at := time.Duration(seconds*1e6) * time.Microsecond
		threads[thread] = true
		switch {
		case strings.HasPrefix(text, "+++"):
			delete(threads, thread)
			ended = len(threads) == 0
			continue
		case strings.HasPrefix(text, "---"):
			continue
		case strings.HasPrefix(text, "<... "):
			_, more, _ := strings.Cut(text, " resumed>")
			c := begun[thread]
			if c == nil {
				return nil, false, fmt.Errorf("%s: the line %.100q resumes a call that never began", path, line)
			}
			full, err := parseCall(open[thread] + more)
			if err != nil {
				return nil, false, fmt.Errorf("%s: %w", path, err)
			}
			delete(begun, thread)
			*c = *full
			returned(at, c)
			continue
		}
		if head, ok := strings.CutSuffix(text, " <unfinished ...>"); ok {
			c, err := parseCall(head)
			if err != nil {
				return nil, false, fmt.Errorf("%s: %w", path, err)
			}
			begun[thread], open[thread], made[c] = c, head, thread
			steps = append(steps, step{at, c, false})
			continue
		}
		c, err := parseCall(text)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", path, err)
		}
		made[c] = thread
		steps = append(steps, step{at, c, false})
		returned(at+took(text), c)
	}
	return withoutPhantoms(steps, made), ended, nil
}

// withoutPhantoms removes the calls that no thread made. threads maps each call
// to its thread.
func withoutPhantoms(steps []step, threads map[*call]string) []step {
	var last *call // the last real call that began
	return slices.DeleteFunc(steps, func(s step) bool {
		if s.end {
			return false
		}
		if phantom(s.call, last, last != nil && threads[last] != threads[s.call]) {
			return true
		}
		last = s.call
		return false
	})
}

// phantom reports whether strace invented the call c from its data about the
// call before. strace 6.1 asks the kernel which call a stopped thread executes.
// If a SIGKILL has woken the thread, the kernel does not answer, and strace
// prints its previous data as a call of that thread. If this data is the
// beginning of a call, the phantom repeats that call in another thread (other
// is true). If the data is the end of a call, strace takes the result of that
// call for the number of a system call and prints the name of that system call.
// The first argument of such a phantom says whether the earlier call failed. A
// phantom never ends.
func phantom(c, before *call, other bool) bool {
	if c.ret != "" {
		return false
	}
	switch first, _ := fd(c.arg(0)); first {
	case "0", "1", "0x1", "NULL":
		return true
	}
	return c.name == "???" || other && before.ret == "" && c.name == before.name && slices.Equal(c.args, before.args)
}

// took returns how long a call took. strace prints the duration at the end of
// the line.
func took(text string) time.Duration {
	i := strings.LastIndexByte(text, '<')
	if i < 0 {
		return 0
	}
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(text[i+1:], ">"), 64)
	if err != nil {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// parseCall reads "name(args) = ret". The end may be missing.
func parseCall(text string) (*call, error) {
	name, rest, ok := strings.Cut(text, "(")
	if !ok {
		return nil, fmt.Errorf("%.100q is not a system call", text)
	}
	c := &call{name: name}
	depth, from := 0, 0
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '"': // strings are in hex, so the next quote ends this one
			n := strings.IndexByte(rest[i+1:], '"')
			if n < 0 {
				return nil, fmt.Errorf("%.100q contains a string that does not end", text)
			}
			i += n + 1
		case '[', '{', '(':
			depth++
		case ',':
			if depth == 0 {
				c.args = append(c.args, strings.TrimSpace(rest[from:i]))
				from = i + 1
			}
		case ']', '}':
			depth--
		case ')':
			if depth > 0 {
				depth--
				continue
			}
			c.args = append(c.args, strings.TrimSpace(rest[from:i]))
			switch _, after, ok := strings.Cut(rest[i:], "= "); {
			case strings.HasPrefix(after, "? ERESTART"): // after a signal, the kernel or the program repeats the call
				c.ret = "-ERESTART"
			case strings.HasPrefix(after, "-1 (errno "): // no real error has this number: see phantom
			case ok && !strings.HasPrefix(after, "?"): // "?" or no result means that the process died in the call
				c.ret, _, _ = strings.Cut(after, " ")
			}
			return c, nil
		}
	}
	c.args = append(c.args, strings.TrimSpace(rest[from:]))
	return c, nil
}

// failed reports whether the call has ended without an effect.
func (c *call) failed() bool { return strings.HasPrefix(c.ret, "-") }

func (c *call) arg(i int) string {
	if i < len(c.args) {
		return c.args[i]
	}
	return ""
}

func (c *call) number(i int) (int64, error) { return strconv.ParseInt(c.arg(i), 0, 64) }

// fd splits "9<\x2f...>" into the descriptor and its path. If the file no
// longer has a name, the path is empty: the content of such a file is lost when
// the process closes the descriptor.
func fd(arg string) (number, path string) {
	number, rest, _ := strings.Cut(arg, "<")
	if strings.HasSuffix(rest, "(deleted)") {
		return number, ""
	}
	return number, string(unhex(strings.TrimSuffix(rest, ">")))
}

// text returns the content of a quoted argument. It fails if strace has cut the
// argument short.
func (c *call) text(i int) ([]byte, error) {
	arg := c.arg(i)
	if len(arg) < 2 || arg[0] != '"' || arg[len(arg)-1] != '"' {
		return nil, fmt.Errorf("%s: %.60q is not a complete string", c.name, arg)
	}
	return unhex(arg[1 : len(arg)-1]), nil
}

// unhex decodes the output of strace -xx.
func unhex(s string) []byte {
	if !strings.HasPrefix(s, `\x`) {
		return []byte(s)
	}
	digits := bytes.ReplaceAll([]byte(s), []byte(`\x`), nil)
	out := make([]byte, hex.DecodedLen(len(digits)))
	if _, err := hex.Decode(out, digits); err != nil {
		return []byte(s)
	}
	return out
}
