package checker

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// Forever is the end time of an operation that has not ended, or of something
// that may last without limit.
const Forever = time.Duration(math.MaxInt64)

// Kind is the command of an Op.
type Kind string

// These are the commands that the model knows. Their replies are those of Redis
// or, for DELIFEQ and IFEQ, of Valkey.
const (
	Set     Kind = "SET"     // with the options that the Op has: NX, XX, IFEQ (Cmp), GET, KEEPTTL, PX
	SetNX   Kind = "SETNX"   // replies 1 or 0
	Get     Kind = "GET"     //
	GetSet  Kind = "GETSET"  //
	GetDel  Kind = "GETDEL"  //
	Del     Kind = "DEL"     //
	DelIfEq Kind = "DELIFEQ" // compares with Cmp and deletes; replies 1 or 0
	Incr    Kind = "INCR"    //
	PExpire Kind = "PEXPIRE" //
	Persist Kind = "PERSIST" //
	PTTL    Kind = "PTTL"    //
)

// Reads reports whether the command changes nothing.
func (k Kind) Reads() bool { return k == Get || k == PTTL }

// Outcome is the outcome of a command, as far as its client knows it.
type Outcome byte

const (
	// Done means that the command was executed once and that the reply is
	// known.
	Done Outcome = iota
	// Refused means that the error proves that the command was not executed.
	Refused
	// Unknown means that the command may have been executed once, may still be
	// executed once, or may never be executed.
	Unknown
)

// Reply is the reply to a command that is Done.
type Reply struct {
	Null  bool
	Int   int64
	Text  string // bulk and simple strings
	Error bool   // Text is an error of the command itself, such as WRONGTYPE
}

// ReplyOf converts a reply of the Redis protocol for the checkers. It leaves
// out the elements of arrays.
func ReplyOf(v respwire.Value) Reply {
	switch {
	case v.Null:
		return Reply{Null: true}
	case v.IsError():
		return Reply{Error: true, Text: v.Err}
	case v.Kind == ':':
		return Reply{Int: v.Int}
	}
	return Reply{Text: v.Text}
}

func (r Reply) String() string {
	switch {
	case r.Null:
		return "nil"
	case r.Error:
		return "error " + r.Text
	case r.Text != "":
		return r.Text
	}
	return fmt.Sprint(r.Int)
}

// Op is one command on one key, as its client saw it. Values that are written
// must be unique in the history, so that a value in a reply identifies its
// write.
type Op struct {
	Client int
	Node   string // id of the node that the client used, for reports
	Kind   Kind
	Key    string
	Arg    string // value written
	Cmp    string // value compared with, "" for none
	NX, XX bool
	// Get is the option GET of SET, and KeepTTL is its option KEEPTTL.
	Get, KeepTTL bool
	TTL          time.Duration // PX, or the argument of PEXPIRE; 0 for none

	Call, Return time.Duration // Return is valid only for Done and Refused
	Outcome      Outcome
	Reply        Reply
	Error        string // error text, if not Done
}

// end returns the latest time at which the command can have been executed.
func (o *Op) end() time.Duration {
	if o.Outcome == Unknown {
		return Forever
	}
	return o.Return
}

func (o *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", o.Kind, o.Key)
	for _, word := range []struct {
		set  bool
		text string
	}{
		{o.Arg != "", o.Arg}, {o.NX, "NX"}, {o.XX, "XX"}, {o.Cmp != "", "=" + o.Cmp}, {o.Get, "GET"},
		{o.KeepTTL, "KEEPTTL"}, {o.TTL != 0, "PX " + fmt.Sprint(o.TTL.Milliseconds())},
	} {
		if word.set {
			b.WriteString(" " + word.text)
		}
	}
	switch o.Outcome {
	case Done:
		fmt.Fprintf(&b, " -> %v", o.Reply)
	case Refused:
		b.WriteString(" -> refused")
	case Unknown:
		b.WriteString(" -> ?")
	}
	return b.String()
}

// Violation describes a guarantee that the history violates.
type Violation struct {
	Check string        `json:"check"` // the checker that found it
	Key   string        `json:"key,omitempty"`
	Text  string        `json:"text"` // one sentence
	From  time.Duration `json:"from_ns"`
	To    time.Duration `json:"to_ns"`
}

func (v Violation) String() string {
	if v.Key == "" {
		return v.Check + ": " + v.Text
	}
	return fmt.Sprintf("%s: %s: %s", v.Check, v.Key, v.Text)
}
