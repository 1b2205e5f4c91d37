package resp

import (
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// steps is the executor of a connection. Some client commands run as several
// groups: a change with a read behind it, or a blocking command that is run
// again. The outcome of such a command is not that of its last group. So steps
// remembers whether the client command has changed the state, or may have
// changed it. After that, no later error of the same command says that it was
// not executed.
type steps struct {
	Executor
	changed bool
}

// begin must be called before the first group of a client command.
func (s *steps) begin() { s.changed = false }

// Do implements Executor.
func (s *steps) Do(g *fsm.Group, local bool, early func(replies []byte)) ([]byte, error) {
	out, err := s.Executor.Do(g, local, early)
	return out, s.outcome(g, err)
}

// Block implements Executor. A command that waits counts as a change, because
// it may be served at any time.
func (s *steps) Block(g *fsm.Group, origin uint64, own bool) ([]byte, error) {
	out, err := s.Executor.Block(g, origin, own)
	return out, s.outcome(g, err)
}

// Unblock implements Executor.
func (s *steps) Unblock() ([]byte, error) {
	reply, err := s.Executor.Unblock()
	if err != nil {
		err = outcome.NewUnknown(err)
	}
	return reply, err
}

// outcome records the outcome of a group and returns the error to report.
func (s *steps) outcome(g *fsm.Group, err error) error {
	before, known := s.changed, outcome.Of(err)
	if g.Write && known != outcome.NotExecuted {
		s.changed = true
	}
	if err != nil && (before || g.Write && known == outcome.Unknown) {
		return outcome.NewUnknown(err)
	}
	return err
}
