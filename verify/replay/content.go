package replay

import (
	"fmt"
	"sort"
	"strings"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// content returns the value of a key as text that is equal for equal values.
// DUMP does not have this property. The order of a large hash or set depends on
// the random seed of the server's hash table. The nodes of a list depend on how
// the list grew. A stream contains the wall-clock times of deliveries, which the
// log determines for our nodes only. content leaves out these times. It also
// leaves out the sizes of a stream's radix tree, and the count that a
// HyperLogLog caches.
func (r *Redis) content(db int, key string) (string, error) {
	t, err := r.must(db, "TYPE", key)
	if err != nil {
		return "", err
	}
	read := map[string][]string{
		"string": {"GET", key},
		"list":   {"LRANGE", key, "0", "-1"},
		"set":    {"SMEMBERS", key},
		"hash":   {"HGETALL", key},
		"zset":   {"ZRANGE", key, "0", "-1", "WITHSCORES"},
		"stream": {"XINFO", "STREAM", key, "FULL", "COUNT", "0"},
	}[t.Text]
	if read == nil {
		return t.Text, nil
	}
	v, err := r.must(db, read...)
	if err != nil {
		return "", err
	}
	switch t.Text {
	case "string":
		return t.Text + " " + hyperLogLog(v.Text), nil
	case "set":
		return t.Text + " " + pairs(v.Texts(), 1), nil
	case "hash":
		return t.Text + " " + pairs(v.Texts(), 2), nil
	case "stream":
		var b strings.Builder
		writeStream(&b, v, "")
		return t.Text + " " + b.String(), nil
	}
	return t.Text + " " + fmt.Sprintf("%q", v.Texts()), nil
}

// hyperLogLog removes the cached count from a string that is a HyperLogLog.
func hyperLogLog(s string) string {
	if len(s) >= 16 && strings.HasPrefix(s, "HYLL") {
		return s[:8] + s[16:]
	}
	return s
}

// pairs groups the texts by n and sorts the groups.
func pairs(list []string, n int) string {
	var groups []string
	for i := 0; i+n <= len(list); i += n {
		groups = append(groups, fmt.Sprintf("%q", list[i:i+n]))
	}
	sort.Strings(groups)
	return strings.Join(groups, " ")
}

// notCompared contains the fields of XINFO STREAM FULL that are not compared.
var notCompared = map[string]bool{"radix-tree-keys": true, "radix-tree-nodes": true, "seen-time": true,
	"active-time": true}

// writeStream writes a part of XINFO STREAM FULL. name is the name of the field
// that contains the part.
func writeStream(b *strings.Builder, v respwire.Value, name string) {
	switch {
	case v.Kind != '*' || v.Null:
		fmt.Fprintf(b, "%q ", v.Text)
		return
	case name == "pel" || name == "pending":
		for _, e := range v.Elems { // an entry has id, consumer, time and count, or id, time and count
			for i, f := range e.Elems {
				if i != len(e.Elems)-2 {
					fmt.Fprintf(b, "%q ", f.Text)
				}
			}
		}
		return
	case name == "entries":
		for _, e := range v.Elems {
			fmt.Fprintf(b, "%q ", e.Raw)
		}
		return
	}
	b.WriteString("[")
	fields := len(v.Elems) > 0 && len(v.Elems)%2 == 0 && v.Elems[0].Kind != '*'
	for i := 0; i < len(v.Elems); i++ {
		if !fields {
			writeStream(b, v.Elems[i], "")
			continue
		}
		field := v.Elems[i].Text
		i++
		if !notCompared[field] {
			fmt.Fprintf(b, "%s: ", field)
			writeStream(b, v.Elems[i], field)
		}
	}
	b.WriteString("] ")
}
