package fsm

// Kind is the RESP3 type of a reply. Code that converts replies into something
// other than bytes, such as values of a script, uses it.
type Kind byte

// These are the kinds of a Reply.
const (
	KindNull      = Kind(kindNull)
	KindNullArray = Kind(kindNullArray)
	KindSimple    = Kind(kindSimple)
	KindError     = Kind(kindError)
	KindInt       = Kind(kindInt)
	KindBulk      = Kind(kindBulk)
	KindArray     = Kind(kindArray)
	KindMap       = Kind(kindMap) // Elems are key, value, key, value
	KindSet       = Kind(kindSet)
	KindDouble    = Kind(kindDouble)
	KindBoolean   = Kind(kindBoolean) // Int64 is 0 or 1
	KindBigNumber = Kind(kindBigNumber)
	KindVerbatim  = Kind(kindVerbatim)
	KindRaw       = Kind(kindRaw) // Text is encoded RESP
	KindNone      = Kind(kindNone)
)

// Kind returns the type of the reply.
func (r Reply) Kind() Kind { return Kind(r.kind) }

// Int64 returns the number of an integer reply.
func (r Reply) Int64() int64 { return r.n }

// Float64 returns the number of a double.
func (r Reply) Float64() float64 { return r.f }

// Elems returns the elements of an array, map or set. The caller must not
// change them.
func (r Reply) Elems() []Reply { return r.elems }

// Format returns the three-letter format of a verbatim text.
func (r Reply) Format() string {
	if r.kind == kindVerbatim && len(r.elems) > 0 {
		return r.elems[0].s
	}
	return "txt"
}
