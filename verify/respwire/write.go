package respwire

import (
	"fmt"
	"strconv"
	"strings"
)

// AppendCommand appends the encoding of one command to b.
func AppendCommand(b []byte, args ...string) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(args)), 10), "\r\n"...)
	for _, arg := range args {
		b = AppendBulk(b, arg)
	}
	return b
}

// AppendBulk appends the encoding of a bulk string to b.
func AppendBulk(b []byte, text string) []byte {
	b = append(strconv.AppendInt(append(b, '$'), int64(len(text)), 10), "\r\n"...)
	return append(append(b, text...), "\r\n"...)
}

// Command returns the encoding of one command.
func Command(args ...string) []byte { return AppendCommand(nil, args...) }

// Bulk returns the encoding of a bulk string.
func Bulk(text string) string { return string(AppendBulk(nil, text)) }

// Pipeline returns the encoding of several commands.
func Pipeline(cmds ...[]string) []byte {
	var b []byte
	for _, args := range cmds {
		b = AppendCommand(b, args...)
	}
	return b
}

// Lines returns the encoding of commands that are written as lines: see Words.
func Lines(lines ...string) []byte {
	var b []byte
	for _, line := range lines {
		b = AppendCommand(b, Words(line)...)
	}
	return b
}

// Words splits a command line much as redis-cli does. Blanks separate the
// words. A word that begins with a quotation mark is a Go string. Words is for
// the lines of tests: it panics if a quoted word is malformed.
func Words(line string) []string {
	var words []string
	for rest := strings.TrimLeft(line, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		if rest[0] != '"' {
			word, after, _ := strings.Cut(rest, " ")
			words, rest = append(words, word), after
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			panic(fmt.Sprintf("respwire: line %q: %v", line, err))
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			panic(fmt.Sprintf("respwire: line %q: %v", line, err))
		}
		words, rest = append(words, word), rest[len(quoted):]
	}
	return words
}

// Args returns the words of a command as the arguments that the state machine
// takes.
func Args(words ...string) [][]byte {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	return args
}
