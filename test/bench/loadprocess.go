package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/neighbor"
	"github.com/holdfast-kv/holdfast/verify/process"
)

const (
	// loadArgument is the first argument of a process of this program that
	// runs a load.
	loadArgument = "load-process"

	// loadNiceness is the niceness of such a process. In the kernel's
	// scheduler, a process with this niceness has about a seventieth of the
	// weight of a node or of the victim.
	loadNiceness = 19
)

// loadOrder says what a load process runs.
type loadOrder struct{ Load, Addr, Password, Prefix string }

// loadProcess is a load in a separate process with a low priority.
//
// The load stands for a client on another machine, but here it shares the
// processors with the node and the victim. In the process of the victim, the
// load would delay the victim through Go's scheduler and garbage collector.
// With the priority of the nodes, it would take from the nodes processor time
// that they would have on separate machines. Either delay would be measured as
// a delay by the node.
type loadProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *json.Decoder
}

// startLoad starts a load and returns when the load has written its keys.
func startLoad(l neighbor.Load, to neighbor.Target) (*loadProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(loadOrder{l.Name, to.Addr, to.Login.Password, to.Prefix})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("nice", "-n", strconv.Itoa(loadNiceness), self, loadArgument, string(order))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(cmd); err != nil {
		return nil, fmt.Errorf("start the process of the load: %w", err)
	}
	p := &loadProcess{cmd, stdin, json.NewDecoder(stdout)}
	var begun bool
	if err := p.out.Decode(&begun); err != nil {
		return nil, errors.Join(fmt.Errorf("the process of the load did not begin: %w", err), p.end(),
			errorOf(stderr.String()))
	}
	return p, nil
}

// errorOf returns an error whose text is the standard error output of a process,
// or nil if there is no output.
func errorOf(stderr string) error {
	if stderr = strings.TrimSpace(stderr); stderr == "" {
		return nil
	}
	return errors.New(stderr)
}

// stop ends the load and returns its effect.
func (p *loadProcess) stop() (e neighbor.Effect, err error) {
	if err := p.stdin.Close(); err != nil {
		return e, errors.Join(err, p.end())
	}
	if err := p.out.Decode(&e); err != nil {
		err = fmt.Errorf("read the effect of the load: %w", err)
		return e, errors.Join(err, p.end())
	}
	return e, p.end()
}

func (p *loadProcess) end() error {
	_ = p.stdin.Close() // it may be closed already
	return p.cmd.Wait()
}

// runLoad is the program of a load process. It runs the load until the input of
// the process ends.
func runLoad(ctx context.Context, order string, in io.Reader, out io.Writer) error {
	var o loadOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return fmt.Errorf("read the order of a load: %w", err)
	}
	target := neighbor.Target{Addr: o.Addr, Login: load.Login{Password: o.Password}, Prefix: o.Prefix}
	for _, l := range neighbor.All() {
		if l.Name != o.Load {
			continue
		}
		running, err := neighbor.Start(ctx, l, target)
		if err != nil {
			return err
		}
		to := json.NewEncoder(out)
		if err := to.Encode(true); err != nil {
			return errors.Join(err, errorOf(running.Stop().Error))
		}
		_, err = io.Copy(io.Discard, in)
		return errors.Join(err, to.Encode(running.Stop()))
	}
	return fmt.Errorf("no load is named %q", o.Load)
}
