package keyspace

// Databases is the number of databases that SELECT can choose.
const Databases = 16

// Pos is the position of an operation in the log: the log index of the entry
// and the number of the operation in the entry. A later operation never has a
// lower position.
type Pos uint64

const posBits = 20 // log2 of fsm.MaxOps

// MakePos returns the position of an operation.
func MakePos(index uint64, position int) Pos { return Pos(index<<posBits | uint64(position)) }

// Index returns the log index of a position.
func (p Pos) Index() uint64 { return uint64(p) >> posBits }
