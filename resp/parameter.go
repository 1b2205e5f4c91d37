package resp

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// parameterClass says how CONFIG SET treats a parameter of Redis.
type parameterClass int

const (
	// noEffect: CONFIG SET checks the value as Redis does, and the cluster
	// stores it, so that CONFIG GET returns it. The value has no other effect.
	noEffect parameterClass = iota
	// refused: CONFIG SET accepts only the present value. Another value would
	// promise a behavior that this program does not have.
	refused
	// immutable and protected: Redis refuses to change these parameters too.
	immutable
	protected
)

// parameter is a parameter of Redis for which this program has no setting of
// its own.
type parameter struct {
	name  string
	alias string // an older name of the parameter
	start string
	class parameterClass
	why   string // why it is refused
	kind  valueKind
}

// valueKind checks a value. It returns the value as CONFIG GET prints it, or
// Redis' error text.
type valueKind func(value string) (canonical, wrong string)

func textKind(value string) (canonical, wrong string) { return value, "" }

func yesNoKind(value string) (canonical, wrong string) {
	if canonical = strings.ToLower(value); canonical == "yes" || canonical == "no" {
		return canonical, ""
	}
	return "", "argument must be 'yes' or 'no'"
}

func notOneOf(names []string) string {
	return "argument(s) must be one of the following: " + strings.Join(names, ", ")
}

func enumKind(names ...string) valueKind {
	return func(value string) (canonical, wrong string) {
		if canonical = strings.ToLower(value); slices.Contains(names, canonical) {
			return canonical, ""
		}
		return "", notOneOf(names)
	}
}

// flagsKind is enumKind for values that combine several names.
func flagsKind(names ...string) valueKind {
	return func(value string) (canonical, wrong string) {
		words := strings.Fields(strings.ToLower(value))
		for _, w := range words {
			if !slices.Contains(names, w) {
				return "", notOneOf(names)
			}
		}
		if len(words) == 0 {
			return "", notOneOf(names)
		}
		var set []string
		for _, n := range names {
			if slices.Contains(words, n) && (n != names[0] || len(set) == 0 && onlyWord(words, n)) {
				set = append(set, n)
			}
		}
		return strings.Join(set, " "), ""
	}
}

// onlyWord reports whether every word is w.
func onlyWord(words []string, w string) bool {
	return !slices.ContainsFunc(words, func(x string) bool { return x != w })
}

func between(low, high string) string {
	return "argument must be between " + low + " and " + high + " inclusive"
}

func intKind(low, high int64) valueKind {
	return func(value string) (canonical, wrong string) {
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil || strconv.FormatInt(n, 10) != value:
			return "", "argument couldn't be parsed into an integer"
		case n < low || n > high:
			return "", between(strconv.FormatInt(low, 10), strconv.FormatInt(high, 10))
		}
		return value, ""
	}
}

// hertzKind checks the value of hz. Redis clamps it to its bounds.
func hertzKind(value string) (canonical, wrong string) {
	if canonical, wrong = intKind(0, math.MaxInt32)(value); wrong != "" {
		return "", wrong
	}
	n, _ := strconv.Atoi(canonical) // intKind has checked it
	return strconv.Itoa(min(max(n, 1), 500)), ""
}

// memoryUnits maps the units of sizes to bytes.
var memoryUnits = map[string]uint64{"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 1000 * 1000, "mb": 1 << 20, "g": 1000 * 1000 * 1000, "gb": 1 << 30}

func memoryKind(low uint64) valueKind {
	return func(value string) (canonical, wrong string) {
		if value == "" { // Redis reads it so
			value = "0"
		}
		digits := len(value) - len(strings.TrimLeft(value, "0123456789"))
		unit, known := memoryUnits[strings.ToLower(value[digits:])]
		if digits == 0 || !known {
			return "", "argument must be a memory value"
		}
		n, err := strconv.ParseUint(value[:digits], 10, 64)
		if err != nil || n > math.MaxInt64/unit || n*unit < low {
			return "", between(strconv.FormatUint(low, 10), strconv.FormatInt(math.MaxInt64, 10))
		}
		return strconv.FormatUint(n*unit, 10), ""
	}
}

// backlogKind checks the value of repl-backlog-size. Redis raises small values.
func backlogKind(value string) (canonical, wrong string) {
	if canonical, wrong = memoryKind(1)(value); wrong != "" {
		return "", wrong
	}
	n, _ := strconv.ParseInt(canonical, 10, 64) // memoryKind has checked it
	return strconv.FormatInt(max(n, 16<<10), 10), ""
}

// percentilesKind checks the value of latency-tracking-info-percentiles.
func percentilesKind(value string) (canonical, wrong string) {
	const name = "latency-tracking-info-percentiles"
	var all []string
	if value == "" {
		return "", ""
	}
	for _, w := range strings.Split(value, " ") {
		n, err := strconv.ParseFloat(w, 64)
		switch {
		case err != nil:
			return "", "Invalid " + name + " parameters"
		case !(n >= 0 && n <= 100):
			return "", name + " parameters should sit between [0.0,100.0]"
		}
		all = append(all, strconv.FormatFloat(n, 'f', -1, 64))
	}
	return strings.Join(all, " "), ""
}

// oomValuesKind checks the value of oom-score-adj-values.
func oomValuesKind(value string) (canonical, wrong string) {
	words := strings.Fields(value)
	if len(words) != 3 {
		return "", "wrong number of arguments"
	}
	for _, w := range words {
		if n, err := strconv.Atoi(w); err != nil || n < -2000 || n > 2000 {
			return "", "Invalid oom-score-adj-values, elements must be between -2000 and 2000."
		}
	}
	return strings.Join(words, " "), ""
}

// titleKind checks the value of proc-title-template: text with the names of
// variables in braces. The variable title may be empty, but the whole text must
// not be.
func titleKind(value string) (canonical, wrong string) {
	const invalid = "template format is invalid or contains unknown variables"
	if strings.ReplaceAll(value, "{title}", "") == "" {
		return "", invalid
	}
	known := []string{"title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"}
	for rest := value; ; {
		_, after, found := strings.Cut(rest, "{")
		if !found {
			return value, ""
		}
		name, next, closed := strings.Cut(after, "}")
		if !closed || !slices.Contains(known, name) {
			return "", invalid
		}
		rest = next
	}
}

// parameterNames indexes the parameters by name and alias.
var parameterNames = indexParameters()

func indexParameters() map[string]*parameter {
	names := make(map[string]*parameter, len(parameters))
	for i := range parameters {
		p := &parameters[i]
		names[p.name] = p
		if p.alias != "" {
			names[p.alias] = p
		}
	}
	return names
}

// isReplicated reports whether the cluster stores the value of a parameter.
func isReplicated(name string) bool {
	p := parameterNames[name]
	return p != nil && p.class == noEffect
}

// check checks a value that a client wants to set in place of current.
func (p *parameter) check(value, current string) (canonical, wrong string) {
	if canonical, wrong = p.kind(value); wrong != "" {
		return "", wrong
	}
	if p.class == refused && canonical != current {
		return "", "it stays '" + current + "': " + p.why
	}
	return canonical, ""
}

// ParametersWithoutEffect returns the names of Redis' parameters that CONFIG
// SET accepts and that have no effect.
func ParametersWithoutEffect() []string { return namesOf(noEffect) }

// ImmutableParameters returns the names of the parameters that Redis refuses to
// change too.
func ImmutableParameters() []string { return append(namesOf(immutable), namesOf(protected)...) }

func namesOf(class parameterClass) []string {
	var names []string
	for i := range parameters {
		if p := &parameters[i]; p.class == class {
			names = append(names, p.name)
			if p.alias != "" {
				names = append(names, p.alias)
			}
		}
	}
	return names
}

// RefusedParameters returns the names of the parameters that this program
// refuses to change, with the reason of each.
func RefusedParameters() (names, reasons []string) {
	for i := range parameters {
		if p := &parameters[i]; p.class == refused {
			names, reasons = append(names, p.name), append(reasons, p.why)
		}
	}
	return names, reasons
}

// OwnSettings returns the names of the settings that have an effect.
func OwnSettings() (names []string) {
	names = []string{"acl-pubsub-default", fsm.SettingNotify, "requirepass"}
	for name := range boundedSettings {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
