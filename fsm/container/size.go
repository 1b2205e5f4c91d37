package container

// Sized is an item that reports its own size. A string needs no such method:
// see sizeOf. Items of other types count as 0 bytes.
type Sized interface {
	// Bytes returns the approximate memory of the item in a Seq, in bytes. It
	// depends on the content of the item alone, so all nodes of a cluster count
	// the same size.
	Bytes() int64
}

// TextBytes returns the approximate memory of the bytes of a string, which the
// allocator rounds up.
func TextBytes(length int) int64 { return (int64(length) + 15) &^ 15 }

// ItemBytes returns the approximate memory of the fixed part of an item with a
// number of words. It counts each word twice, because nodes of a Seq are half
// full if the items are inserted in order.
func ItemBytes(words int64) int64 { return 16 * words }

const (
	stringWords = 2
	scoredWords = 1 + stringWords
)

// sizeOf returns the size of an item. place must point to the item in its node:
// a pointer to a variable would move the variable to the heap.
func sizeOf[T any](place *T) int64 {
	switch item := any(place).(type) {
	case *string:
		return ItemBytes(stringWords) + TextBytes(len(*item))
	case Sized:
		return item.Bytes()
	}
	return 0
}

// Bytes implements Sized.
func (e *Item[V]) Bytes() int64 {
	const words = 1 + stringWords // hash and name
	n := ItemBytes(words) + TextBytes(len(e.Name))
	switch v := any(&e.Value).(type) {
	case *string:
		n += ItemBytes(stringWords) + TextBytes(len(*v))
	case *float64:
		n += ItemBytes(1)
	}
	return n
}

// Bytes implements Sized.
func (a *Scored) Bytes() int64 { return ItemBytes(scoredWords) + TextBytes(len(a.Member)) }
