package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/verify/checker"
)

// value is a decoded reply.
type value struct {
	checker.Reply
	Array []value
}

// parse decodes the replies of a group.
func parse(raw string) ([]value, error) {
	var all []value
	for len(raw) > 0 {
		v, rest, err := parseOne(raw)
		if err != nil {
			return nil, fmt.Errorf("reply %q: %w", raw, err)
		}
		all, raw = append(all, v), rest
	}
	return all, nil
}

func parseOne(raw string) (v value, rest string, err error) {
	line, rest, ok := strings.Cut(raw, "\r\n")
	if !ok || line == "" {
		return v, "", fmt.Errorf("no line")
	}
	text := line[1:]
	switch line[0] {
	case '+':
		v.Text = text
		return v, rest, nil
	case '-':
		v.Error, v.Text = true, text
		return v, rest, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return v, "", err
	}
	switch line[0] {
	case ':':
		v.Int = n
		return v, rest, nil
	case '$':
		if n < 0 {
			v.Null = true
			return v, rest, nil
		}
		if int64(len(rest)) < n+2 {
			return v, "", fmt.Errorf("bulk string is cut off")
		}
		v.Text = rest[:n]
		return v, rest[n+2:], nil
	case '*':
		if n < 0 {
			v.Null = true
			return v, rest, nil
		}
		v.Array = []value{}
		for range n {
			var e value
			if e, rest, err = parseOne(rest); err != nil {
				return v, "", err
			}
			v.Array = append(v.Array, e)
		}
		return v, rest, nil
	}
	return v, "", fmt.Errorf("type %q", line[0])
}
