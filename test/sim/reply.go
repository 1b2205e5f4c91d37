package sim

import (
	"fmt"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// value is a decoded reply.
type value struct {
	checker.Reply
	Array []value
}

// valueOf converts a reply.
func valueOf(v respwire.Value) value {
	out := value{Reply: checker.ReplyOf(v)}
	switch v.Kind {
	case '*', '~', '>', '%':
		if !v.Null {
			out.Array = make([]value, 0, len(v.Elems))
		}
	}
	for _, e := range v.Elems {
		out.Array = append(out.Array, valueOf(e))
	}
	return out
}

// parse decodes the replies of a group.
func parse(raw string) ([]value, error) {
	replies, err := respwire.ParseAll([]byte(raw))
	if err != nil {
		return nil, fmt.Errorf("reply %q: %w", raw, err)
	}
	all := make([]value, len(replies))
	for i, v := range replies {
		all[i] = valueOf(v)
	}
	return all, nil
}
