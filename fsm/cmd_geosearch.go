package fsm

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

var geosearchCommands = []Command{
	{
		Name: "georadius", Run: georadius, Arity: -6, Flags: Write | DenyOOM | MovableKeys, Keys: Keys{1, 1, 1},
		Access: geoStoreAccess, Specs: georadiusSpecs(6), KeysOf: georadiusKeys,
		Group: "geo", Since: "3.2.0",
		Complexity: georadiusComplexity,
		Syntax:     "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key] [STOREDIST key]",
		Doc:        "Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a point",
		History: []Change{
			{"6.2.0", "Added the `ANY` option for `COUNT`."},
			{"7.0.0", "Added support for uppercase unit names."},
		},
		DeprecatedSince: "6.2.0", ReplacedBy: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
	},
	{
		Name: "georadius_ro", Run: georadiusRO, Arity: -6, Flags: ReadOnly | Slow, Keys: Keys{1, 1, 1},
		Access: Access{Mode: "RO", Flags: "access"},
		Group:  "geo", Since: "3.2.10",
		Complexity: georadiusComplexity,
		Syntax:     "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
		Doc:        "A read-only variant for GEORADIUS",
		History:    []Change{{"6.2.0", "Added the `ANY` option for `COUNT`."}}, DeprecatedSince: "6.2.0",
		ReplacedBy: "`GEOSEARCH` with the `BYRADIUS` argument",
	},
	{
		Name: "georadiusbymember", Run: georadiusbymember, Arity: -5, Flags: Write | DenyOOM | MovableKeys,
		Keys: Keys{1, 1, 1}, Access: geoStoreAccess, Specs: georadiusSpecs(5), KeysOf: georadiusbymemberKeys,
		Group: "geo", Since: "3.2.0",
		Complexity: georadiusComplexity,
		Syntax:     "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key] [STOREDIST key]",
		Doc:        "Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a member",
		History:    []Change{{"7.0.0", "Added support for uppercase unit names."}}, DeprecatedSince: "6.2.0",
		ReplacedBy: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
	},
	{
		Name: "georadiusbymember_ro", Run: georadiusbymemberRO, Arity: -5, Flags: ReadOnly | Slow,
		Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"},
		Group: "geo", Since: "3.2.10",
		Complexity: georadiusComplexity,
		Syntax:     "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
		Doc:        "A read-only variant for GEORADIUSBYMEMBER", DeprecatedSince: "6.2.0",
		ReplacedBy: "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments",
	},
	{
		Name: "geosearch", Run: geosearch, Arity: -7, Flags: ReadOnly | Slow, Keys: Keys{1, 1, 1},
		Access: Access{Mode: "RO", Flags: "access"},
		Group:  "geo", Since: "6.2.0",
		Complexity: geosearchComplexity,
		Syntax:     "key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
		Doc:        "Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle.",
		History:    []Change{{"7.0.0", "Added support for uppercase unit names."}},
	},
	{
		Name: "geosearchstore", Run: geosearchstore, Arity: -8, Flags: Write | DenyOOM, Keys: Keys{1, 2, 1},
		Specs: []KeySpec{
			{Keys: Keys{1, 1, 1}, Access: geoStoreAccess},
			{Keys: Keys{2, 2, 1}, Access: Access{Mode: "RO", Flags: "access"}},
		},
		Group: "geo", Since: "6.2.0",
		Complexity: geosearchComplexity,
		Syntax:     "destination source <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
		Doc:        "Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle, and store the result in another key.",
		History:    []Change{{"7.0.0", "Added support for uppercase unit names."}},
	},
}

const (
	georadiusComplexity = "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index."
	geosearchComplexity = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape"

	msgGeoRadius      = "ERR need numeric radius"
	msgGeoNegative    = "ERR radius cannot be negative"
	msgGeoWidth       = "ERR need numeric width"
	msgGeoHeight      = "ERR need numeric height"
	msgGeoBoxNegative = "ERR height or width cannot be negative"
	msgGeoMember      = "ERR could not decode requested zset member"
	msgGeoCount       = "ERR COUNT must be > 0"
	msgGeoAny         = "ERR the ANY argument requires COUNT argument"
	msgGeoStoreWith   = " is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
	msgGeoMost        = "ERR the area has more than 4194304 members to be looked at, search a smaller one"

	// geoMost is the largest number of members that a search looks at, which
	// takes some seconds.
	geoMost = 1 << 22
)

var geoStoreAccess = Access{Mode: "OW", Flags: "update"}

// georadiusSpecs returns the key specs of the two commands that may store their
// results. from is the index of their first option.
func georadiusSpecs(from int) []KeySpec {
	return []KeySpec{
		{Keys: Keys{1, 1, 1}, Access: Access{Mode: "RO", Flags: "access"}},
		{Keyword: "STORE", Keys: Keys{First: from, Step: 1}, Access: geoStoreAccess},
		{Keyword: "STOREDIST", Keys: Keys{First: from, Step: 1}, Access: geoStoreAccess},
	}
}

func georadiusKeys(args [][]byte) []int         { return storeKeys(args, 6) }
func georadiusbymemberKeys(args [][]byte) []int { return storeKeys(args, 5) }

// storeKeys returns the positions of the source key and of the keys after every
// STORE and every STOREDIST. Redis considers only the first of each but writes
// to the last, so a user can bypass its ACL rules.
func storeKeys(args [][]byte, from int) []int {
	pos := []int{1}
	for _, word := range []string{"STORE", "STOREDIST"} {
		for i := from; i+1 < len(args); i++ {
			if fold(args[i], word) {
				pos = append(pos, i+1)
			}
		}
	}
	return pos
}

// geoShape is the area that is searched. Its lengths are multiples of unit.
type geoShape struct {
	middle        point
	box           bool
	radius        float64
	width, height float64
	unit          float64 // in meters
}

// circle parses a radius and its unit.
func (s *geoShape) circle(args [][]byte) (fail Reply) {
	radius, ok := number.ParseFloat(args[0])
	switch {
	case !ok:
		return Error(msgGeoRadius)
	case radius < 0:
		return Error(msgGeoNegative)
	}
	s.box, s.radius = false, radius
	s.unit, fail = parseUnit(args[1])
	return fail
}

// rectangle parses a width, a height and their unit.
func (s *geoShape) rectangle(args [][]byte) (fail Reply) {
	width, ok1 := number.ParseFloat(args[0])
	height, ok2 := number.ParseFloat(args[1])
	switch {
	case !ok1:
		return Error(msgGeoWidth)
	case !ok2:
		return Error(msgGeoHeight)
	case width < 0 || height < 0:
		return Error(msgGeoBoxNegative)
	}
	s.box, s.width, s.height = true, width, height
	s.unit, fail = parseUnit(args[2])
	return fail
}

// enclosingRadius returns the radius in meters of a circle that contains the
// area.
func (s *geoShape) enclosingRadius() float64 {
	if !s.box {
		return float64(s.radius * s.unit)
	}
	w, h := s.width/2, s.height/2
	return float64(math.Sqrt(float64(w*w)+float64(h*h)) * s.unit)
}

// bounds returns the smallest rectangle of parallels and meridians that
// contains the area. The enclosing radius must be less than an eighth of the
// earth's circumference.
func (s *geoShape) bounds() area {
	w, h := s.radius, s.radius
	if s.box {
		w, h = s.width/2, s.height/2
	}
	dLat := degrees(float64(s.unit*h) / geoRadius)
	end := s.middle.lat + dLat // the parallel closer to a pole
	if s.middle.lat < 0 {
		end = s.middle.lat - dLat
	}
	dLon := degrees(float64(s.unit*w) / geoRadius / cos(radians(end)))
	return area{point{s.middle.lon - dLon, s.middle.lat - dLat}, point{s.middle.lon + dLon, s.middle.lat + dLat}}
}

// contains reports whether a point is in the area, and returns its distance
// from the middle in meters.
func (s *geoShape) contains(p point) (d float64, in bool) {
	lat := latDistance(s.middle.lat, p.lat)
	if !s.box {
		radius := float64(s.radius * s.unit)
		if lat > float64(radius*(1+1e-6)) { // a margin far larger than the rounding error
			return 0, false
		}
		d = distance(s.middle, p)
		return d, d <= radius
	}
	if lat > float64(s.height*s.unit)/2 || distance(p, point{s.middle.lon, p.lat}) > float64(s.width*s.unit)/2 {
		return 0, false
	}
	return distance(s.middle, p), true
}

// geoWorld is half of the circumference of the earth in the Mercator
// projection, in meters.
const geoWorld = 20037726.37

// steps estimates the steps of cells that are small but still so large that one
// cell and its neighbors cover the area. Cells are narrower toward the poles.
func (s *geoShape) steps(radius float64) int {
	if radius == 0 {
		return geoSteps
	}
	n := -1
	for ; radius < geoWorld; radius += radius {
		n++
	}
	if lat := math.Abs(s.middle.lat); lat > 80 {
		n -= 2
	} else if lat > 66 {
		n--
	}
	return max(min(n, geoSteps), 1)
}

// geoRing has the offsets of a cell and of its neighbors, in the order in which
// Redis visits them. That order is also the order of unsorted results.
var geoRing = [...]struct{ dx, dy int }{{0, 0}, {0, 1}, {0, -1}, {1, 0}, {-1, 0}, {1, 1}, {-1, 1}, {1, -1}, {-1, -1}}

// cells returns the cells that cover the area. A zero value in the list is a
// cell that need not be searched.
func (s *geoShape) cells() (list [len(geoRing)]geoCell) {
	steps := s.steps(s.enclosingRadius())
	around := func() {
		middle := cellOf(s.middle, geoMaxLat, steps)
		for i, to := range geoRing {
			list[i] = middle.neighbor(to.dx, to.dy)
		}
	}
	around()
	if steps == 1 {
		return list
	}
	b := s.bounds()
	if list[1].area().max.lat < b.max.lat || list[2].area().min.lat > b.min.lat ||
		list[3].area().max.lon < b.max.lon || list[4].area().min.lon > b.min.lon {
		steps--
		around()
	}
	if steps == 1 {
		return list
	}
	a := list[0].area()
	for i, to := range geoRing {
		if to.dy > 0 && a.max.lat > b.max.lat || to.dy < 0 && a.min.lat < b.min.lat ||
			to.dx > 0 && a.max.lon > b.max.lon || to.dx < 0 && a.min.lon < b.min.lon {
			list[i] = geoCell{}
		}
	}
	return list
}

// geoPoint is a member that was found.
type geoPoint struct {
	scored
	at       point
	distance float64 // in meters
	n        int     // the number of members that were found before it
}

// geoFound collects the members that were found. It keeps at most twice as many
// members as the result may have, and from time to time drops those that cannot
// be in the result.
type geoFound struct {
	points []geoPoint
	n      int   // the number of members that were found
	order  int   // 1 ascending, -1 descending, 0 unsorted
	count  int64 // the number of members to return; 0: all
	any    bool  // return the first members that are found
}

func (f *geoFound) add(m *scored, at point, distance float64) {
	f.points = append(f.points, geoPoint{*m, at, distance, f.n})
	f.n++
	if f.count > 0 && int64(len(f.points)) >= max(2*min(f.count, geoMost), 1024) {
		f.cut()
	}
}

// enough reports whether the search can stop.
func (f *geoFound) enough() bool { return f.any && int64(f.n) >= f.count }

// cut sorts the members and drops those that exceed the count. Members at equal
// distances keep their order. The order in Redis differs if COUNT drops
// members.
func (f *geoFound) cut() {
	if f.order != 0 {
		slices.SortFunc(f.points, func(a, b geoPoint) int {
			return cmp.Or(f.order*cmp.Compare(a.distance, b.distance), cmp.Compare(a.n, b.n))
		})
	}
	if f.count > 0 && f.count < int64(len(f.points)) {
		f.points = f.points[:f.count]
	}
}

// search collects the members in an area. It fails with an error after it has
// looked at most members.
func (s *geoShape) search(c *Ctx, v *collection, f *geoFound, most int) (fail Reply) {
	looked := 0
	var last geoCell
	for i, cell := range s.cells() {
		if cell == (geoCell{}) || cell == last { // the same cell appears several times if the map has few cells
			continue
		}
		if i > 0 {
			last = cell
		}
		from, to := cell.scores()
		start := v.order.Search(func(m *scored) bool { return m.score < from })
		v.order.Ascend(start, func(m *scored) bool {
			if m.score >= to || f.enough() {
				return false
			}
			c.charge(stepsDistance)
			if looked++; looked > most {
				return false
			}
			at := pointOf(m.score)
			if d, in := s.contains(at); in {
				c.hold(geoPointBytes)
				f.add(m, at, d)
			}
			return true
		})
	}
	if looked > most {
		return Error(msgGeoMost)
	}
	c.chargeSort(len(f.points))
	f.cut()
	return Null
}

// geoFlags says which arguments a command of this family accepts.
type geoFlags byte

const (
	geoStores     geoFlags = 1 << iota // STORE key and STOREDIST key are allowed
	geoByMember                        // the middle is a member
	geoSearch                          // GEOSEARCH or GEOSEARCHSTORE
	geoSearchInto                      // GEOSEARCHSTORE
)

// geoQuery has the parsed arguments of a command.
type geoQuery struct {
	flags geoFlags
	src   *object // the sorted set, or nil
	shape geoShape
	found geoFound

	withDist, withHash, withCoord bool

	// stores is set if the result is stored in the key into.
	stores    bool
	into      []byte
	storeDist bool

	// from and by are set if GEOSEARCH was given the middle and the shape.
	from, by bool
	member   bool // the middle is given by a member
}

// option parses the option at the start of args. n is the number of its
// arguments, or 0 if args does not start with an option.
func (q *geoQuery) option(args [][]byte) (n int, fail Reply) {
	more := len(args) - 1
	set := func(b *bool) (int, Reply) { *b = true; return 1, Null }
	order := func(n int) (int, Reply) { q.found.order = n; return 1, Null }
	stores, searches := q.flags&geoStores != 0, q.flags&geoSearch != 0
	switch word := args[0]; {
	case fold(word, "WITHDIST"):
		return set(&q.withDist)
	case fold(word, "WITHHASH"):
		return set(&q.withHash)
	case fold(word, "WITHCOORD"):
		return set(&q.withCoord)
	case fold(word, "ANY"):
		return set(&q.found.any)
	case fold(word, "ASC"):
		return order(1)
	case fold(word, "DESC"):
		return order(-1)
	case fold(word, "COUNT") && more >= 1:
		var ok bool
		q.found.count, ok = number.ParseInt(args[1])
		switch {
		case !ok:
			fail = Error(msgNotInt)
		case q.found.count <= 0:
			fail = Error(msgGeoCount)
		}
		return 2, fail
	case stores && fold(word, "STORE") && more >= 1:
		q.stores, q.into, q.storeDist = true, args[1], false
		return 2, Null
	case stores && fold(word, "STOREDIST") && more >= 1:
		q.stores, q.into, q.storeDist = true, args[1], true
		return 2, Null
	case q.flags&geoSearchInto != 0 && fold(word, "STOREDIST"):
		return set(&q.storeDist)
	case searches && fold(word, "FROMMEMBER") && more >= 1 && (!q.from || q.member):
		q.from, q.member = true, true
		return 2, q.center(args[1])
	case searches && fold(word, "FROMLONLAT") && more >= 2 && !q.member:
		q.from = true
		q.shape.middle, fail = parsePoint(args[1:])
		return 3, fail
	case searches && fold(word, "BYRADIUS") && more >= 2 && (!q.by || !q.shape.box):
		q.by = true
		return 3, q.shape.circle(args[1:])
	case searches && fold(word, "BYBOX") && more >= 3 && (!q.by || q.shape.box):
		q.by = true
		return 4, q.shape.rectangle(args[1:])
	}
	return 0, Error(msgSyntax)
}

// center makes a member the middle of the area. If the key does not exist,
// center succeeds, and the other arguments are still parsed.
func (q *geoQuery) center(member []byte) (fail Reply) {
	if q.src == nil {
		return Null
	}
	var ok bool
	if q.shape.middle, ok = cell(q.src, member); !ok {
		return Error(msgGeoMember)
	}
	return Null
}

// parse parses the arguments in the same order as Redis, because the order
// decides which error is reported.
func (q *geoQuery) parse(args [][]byte) (fail Reply) {
	name, options := "STORE option in GEORADIUS", args[2:]
	switch {
	case q.flags&geoSearchInto != 0:
		name, options = "GEOSEARCHSTORE", args[3:]
		q.stores, q.into = true, args[1]
	case q.flags&geoSearch != 0:
	case q.flags&geoByMember != 0:
		options = args[5:]
		if q.src == nil {
			break
		}
		if fail = q.center(args[2]); !fail.IsError() {
			fail = q.shape.circle(args[3:])
		}
	default:
		options = args[6:]
		if q.shape.middle, fail = parsePoint(args[2:]); !fail.IsError() {
			fail = q.shape.circle(args[4:])
		}
	}
	for len(options) > 0 && !fail.IsError() {
		var n int
		n, fail = q.option(options)
		options = options[n:]
	}
	command := strings.ToUpper(string(args[0]))
	switch {
	case fail.IsError():
		return fail
	case q.stores && (q.withDist || q.withHash || q.withCoord):
		return Error("ERR " + name + msgGeoStoreWith)
	case q.flags&geoSearch != 0 && !q.from:
		return Error("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for " + command)
	case q.flags&geoSearch != 0 && !q.by:
		return Error("ERR exactly one of BYRADIUS and BYBOX can be specified for " + command)
	case q.found.any && q.found.count == 0:
		return Error(msgGeoAny)
	case q.found.count > 0 && q.found.order == 0 && !q.found.any:
		q.found.order = 1
	}
	return Null
}

func georadius(c *Ctx, args [][]byte) Reply           { return c.geosearch(args, geoStores) }
func georadiusRO(c *Ctx, args [][]byte) Reply         { return c.geosearch(args, 0) }
func georadiusbymember(c *Ctx, args [][]byte) Reply   { return c.geosearch(args, geoByMember|geoStores) }
func georadiusbymemberRO(c *Ctx, args [][]byte) Reply { return c.geosearch(args, geoByMember) }
func geosearch(c *Ctx, args [][]byte) Reply           { return c.geosearch(args, geoSearch) }
func geosearchstore(c *Ctx, args [][]byte) Reply      { return c.geosearch(args, geoSearch|geoSearchInto) }

func (c *Ctx) geosearch(args [][]byte, flags geoFlags) Reply {
	key := args[1]
	if flags&geoSearchInto != 0 {
		key = args[2]
	}
	o, wrong := c.lookupType(key, typeZSet)
	if wrong {
		return Error(msgWrongType)
	}
	q := geoQuery{flags: flags, src: o}
	if fail := q.parse(args); fail.IsError() {
		return fail
	}
	if o != nil {
		if fail := q.shape.search(c, o.coll, &q.found, geoMost); fail.IsError() {
			return fail
		}
	}
	if q.stores {
		return c.geoStore(&q)
	}
	return q.reply(c)
}

// geoStore stores the members that were found in a sorted set.
func (c *Ctx) geoStore(q *geoQuery) Reply {
	event := "georadiusstore"
	if q.flags&geoSearch != 0 {
		event = "geosearchstore"
	}
	n := c.open(nil, q.into, typeZSet)
	for i := range q.found.points {
		p := &q.found.points[i]
		score := p.score
		c.charge(stepsPut)
		if q.storeDist {
			score = p.distance / q.shape.unit
		}
		n.coll.putScore(c.m.owner, p.member, score)
	}
	return c.storeResult(n, "z", event)
}

func (q *geoQuery) reply(c *Ctx) Reply {
	l := collector{c: c}
	for i := range q.found.points {
		p := &q.found.points[i]
		r := Bulk(p.member)
		if q.withDist || q.withHash || q.withCoord {
			r = Array(q.describe(p))
		}
		if q.withCoord {
			l.size += coordBytes
		}
		if !l.add(r) {
			break
		}
	}
	return l.reply(Array)
}

// coordBytes is the approximate size of two coordinates in a reply, in bytes.
const coordBytes = 50

// describe returns the elements of the reply for a member: its name and what
// the options ask for.
func (q *geoQuery) describe(p *geoPoint) []Reply {
	words := []Reply{Bulk(p.member)}
	if q.withDist {
		words = append(words, metersReply(p.distance/q.shape.unit))
	}
	if q.withHash {
		words = append(words, Int(int64(p.score)))
	}
	if q.withCoord {
		words = append(words, p.at.reply())
	}
	return words
}
