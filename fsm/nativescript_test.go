package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestNativeScripts_Spellings: the lock scripts that many programs contain are
// recognized in all spellings, and their errors name the right line.
func TestNativeScripts_Spellings(t *testing.T) {
	s := newStage(t)
	s.quick = true
	s.group("RPUSH|l|x")
	s.commit()
	for _, text := range fsm.Spellings() {
		line := 1 + strings.Count(text[:strings.Index(text, "if")], "\n")
		s.group("SET|k|tok", "EVAL|"+text+"|1|k|tok|60000", "EVAL|"+text+"|1|k|other|60000", "EVAL|"+text+"|1|l|tok|60000")
		if s.batch.Scripts() {
			t.Fatalf("%q is not recognized", text)
		}
		s.want(text, fmt.Sprintf("+OK :1 :0 -WRONGTYPE Operation against a key holding the wrong kind of value script: %s, on @user_script:%d. ", fsm.SHA1([]byte(text)), line))
	}
	if n := len(fsm.Spellings()); n != 448 {
		t.Errorf("%d spellings, want 448", n)
	}
}

// TestNativeScripts_Tracking: two native scripts, which delete and renew a lock,
// report their read of the key before their write. So a connection with tracking
// is notified of its own change of a lock, as it is when the script is
// interpreted.
func TestNativeScripts_Tracking(t *testing.T) {
	for _, text := range []string{fsm.Spellings()[0], fsm.Spellings()[len(fsm.Spellings())-1]} {
		s := newStage(t)
		s.quick = true
		s.group("SET|k|tok")
		s.commit()
		s.m.Want(fsm.Kinds(fsm.EventTracked, fsm.EventChanged))
		for _, c := range []struct {
			token string
			want  []fsm.EventKind
		}{
			{"other", []fsm.EventKind{fsm.EventTracked}},
			{"tok", []fsm.EventKind{fsm.EventTracked, fsm.EventChanged}},
		} {
			var g fsm.Group
			g.Reset(3, 1)
			g.Track()
			cmd, args := s.words("EVAL|" + text + "|1|k|" + c.token + "|60000")
			g.Command(cmd, 0, args)
			s.add(&g)
			s.commit()
			var got []fsm.EventKind
			for _, e := range s.events {
				got = append(got, e.Kind)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q with token %s: events %v, want %v", text, c.token, got, c.want)
			}
		}
	}
}

// TestNativeScripts checks that a call of a native script needs no interpreter if
// it has the arguments that a library sends, or an invalid number of keys. A call
// with one argument too few needs the interpreter. test/compat checks that the
// native form has the same effects as the text.
func TestNativeScripts(t *testing.T) {
	s := newStage(t)
	sha := "cf0e94b2e9ffc7e04395cf88f7583fc309985910"
	s.group("SET|k|tok", "EVALSHA|"+sha+"|1|k|tok", "EVALSHA|"+sha+"|2|k", "EVALSHA|"+sha+"|-1|k")
	if s.batch.Scripts() {
		t.Error("a batch that contains only native scripts asks for a speculative execution")
	}
	s.want("not loaded", "+OK -NOSCRIPT No matching script. Please use EVAL. -ERR Number of keys can't be greater than number of args -ERR Number of keys can't be negative ")
	s.group("EVALSHA|" + sha + "|1|k") // the token is missing
	if !s.batch.Scripts() {
		t.Error("a script with one argument too few is run natively")
	}
	s.want("without a token", "-NOSCRIPT No matching script. Please use EVAL. ")
}
