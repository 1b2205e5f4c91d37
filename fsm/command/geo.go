package command

import "github.com/holdfast-kv/holdfast/fsm"

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/container"
	"github.com/holdfast-kv/holdfast/fsm/geo"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

var geoCommands = []fsm.Command{
	{
		Name: "geoadd", Run: geoadd, Arity: -5, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Call: 160, PerArgument: stepsPoint},
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RW", Flags: "update"},
		Group: "geo", Since: "3.2.0",
		Complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
		Syntax:     "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
		Doc:        "Add one or more geospatial items in the geospatial index represented using a sorted set",
		History:    []fsm.Change{{Since: "6.2.0", What: "Added the `CH`, `NX` and `XX` options."}},
	},
	{
		Name: "geodist", Run: geodist, Arity: -4, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "geo", Since: "3.2.0",
		Complexity: "O(log(N))",
		Syntax:     "key member1 member2 [M | KM | FT | MI]",
		Doc:        "Returns the distance between two members of a geospatial index",
	},
	{
		Name: "geohash", Run: geohash, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "geo", Since: "3.2.0",
		Complexity: "O(log(N)) for each member requested, where N is the number of elements in the sorted set.",
		Syntax:     "key member [member ...]",
		Doc:        "Returns members of a geospatial index as standard geohash strings",
	},
	{
		Name: "geopos", Run: geopos, Arity: -2, Flags: fsm.ReadOnly,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "geo", Since: "3.2.0",
		Complexity: "O(N) where N is the number of members requested.",
		Syntax:     "key member [member ...]",
		Doc:        "Returns longitude and latitude of members of a geospatial index",
	},
	{
		Name: "georadius", Run: georadius, Arity: -6, Flags: fsm.Write | fsm.DenyOOM | fsm.MovableKeys,
		Work: fsm.WorkHooks{Steps: georadiusWork},
		Keys: fsm.KeysAt(1, 1, 1), KeysOf: georadiusKeys, Access: geoStoreAccess,
		Specs: georadiusSpecs(6),
		Group: "geo", Since: "3.2.0", DeprecatedSince: "6.2.0",
		ReplacedBy: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
		Complexity: georadiusComplexity,
		Syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT " +
			"count [ANY]] [ASC | DESC] [STORE key] [STOREDIST key]",
		Doc: "Query a sorted set representing a geospatial index to fetch members matching a given maximum " +
			"distance from a point",
		History: []fsm.Change{
			{Since: "6.2.0", What: "Added the `ANY` option for `COUNT`."},
			{Since: "7.0.0", What: "Added support for uppercase unit names."},
		},
	},
	{
		Name: "georadius_ro", Run: georadiusRO, Arity: -6, Flags: fsm.ReadOnly | fsm.Slow,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "geo", Since: "3.2.10", DeprecatedSince: "6.2.0", ReplacedBy: "`GEOSEARCH` with the `BYRADIUS` argument",
		Complexity: georadiusComplexity,
		Syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT " +
			"count [ANY]] [ASC | DESC]",
		Doc:     "A read-only variant for GEORADIUS",
		History: []fsm.Change{{Since: "6.2.0", What: "Added the `ANY` option for `COUNT`."}},
	},
	{
		Name: "georadiusbymember", Run: georadiusbymember, Arity: -5, Flags: fsm.Write | fsm.DenyOOM | fsm.MovableKeys,
		Work: fsm.WorkHooks{Steps: georadiusWork},
		Keys: fsm.KeysAt(1, 1, 1), KeysOf: georadiusbymemberKeys, Access: geoStoreAccess,
		Specs: georadiusSpecs(5),
		Group: "geo", Since: "3.2.0", DeprecatedSince: "6.2.0",
		ReplacedBy: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
		Complexity: georadiusComplexity,
		Syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] " +
			"[ASC | DESC] [STORE key] [STOREDIST key]",
		Doc: "Query a sorted set representing a geospatial index to fetch members matching a given maximum " +
			"distance from a member",
		History: []fsm.Change{{Since: "7.0.0", What: "Added support for uppercase unit names."}},
	},
	{
		Name: "georadiusbymember_ro", Run: georadiusbymemberRO, Arity: -5, Flags: fsm.ReadOnly | fsm.Slow,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "geo", Since: "3.2.10", DeprecatedSince: "6.2.0",
		ReplacedBy: "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments",
		Complexity: georadiusComplexity,
		Syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] " +
			"[ASC | DESC]",
		Doc: "A read-only variant for GEORADIUSBYMEMBER",
	},
	{
		Name: "geosearch", Run: geosearch, Arity: -7, Flags: fsm.ReadOnly | fsm.Slow,
		Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"},
		Group: "geo", Since: "6.2.0",
		Complexity: geosearchComplexity,
		Syntax: "key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | " +
			"BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] " +
			"[WITHHASH]",
		Doc: "Query a sorted set representing a geospatial index to fetch members inside an area of a box " +
			"or a circle.",
		History: []fsm.Change{{Since: "7.0.0", What: "Added support for uppercase unit names."}},
	},
	{
		Name: "geosearchstore", Run: geosearchstore, Arity: -8, Flags: fsm.Write | fsm.DenyOOM,
		Work: fsm.WorkHooks{Steps: geosearchstoreWork},
		Keys: fsm.KeysAt(1, 2, 1),
		Specs: []fsm.KeySpec{
			{Keys: fsm.KeysAt(1, 1, 1), Access: geoStoreAccess},
			{Keys: fsm.KeysAt(2, 2, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
		},
		Group: "geo", Since: "6.2.0",
		Complexity: geosearchComplexity,
		Syntax: "destination source <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | " +
			"KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
		Doc: "Query a sorted set representing a geospatial index to fetch members inside an area of a box " +
			"or a circle, and store the result in another key.",
		History: []fsm.Change{{Since: "7.0.0", What: "Added support for uppercase unit names."}},
	},
}

const msgGeoUnit = "ERR unsupported unit provided. please use M, KM, FT, MI"

// parsePoint parses a longitude and a latitude.
func parsePoint(args [][]byte) (p geo.Point, fail fsm.Reply) {
	var ok1, ok2 bool
	p.Lon, ok1 = number.ParseFloat(args[0])
	p.Lat, ok2 = number.ParseFloat(args[1])
	switch {
	case !ok1 || !ok2:
		return p, fsm.Error(msgNotFloat)
	case !p.Valid():
		return p, fsm.Error("ERR invalid longitude,latitude pair " + sixDecimals(p.Lon) + "," + sixDecimals(p.Lat))
	}
	return p, fsm.Null
}

// sixDecimals formats a number as C's %f does.
func sixDecimals(f float64) string {
	if math.IsInf(f, 0) {
		return number.FormatDouble(f)
	}
	return strconv.FormatFloat(f, 'f', 6, 64)
}

// parseUnit returns the length of a unit in meters.
func parseUnit(arg []byte) (meters float64, fail fsm.Reply) {
	switch {
	case fsm.IsWord(arg, "M"):
		return 1, fsm.Null
	case fsm.IsWord(arg, "KM"):
		return 1000, fsm.Null
	case fsm.IsWord(arg, "FT"):
		return 0.3048, fsm.Null
	case fsm.IsWord(arg, "MI"):
		return 1609.34, fsm.Null
	}
	return 0, fsm.Error(msgGeoUnit)
}

func geoadd(c *fsm.Ctx, args [][]byte) fsm.Reply {
	var p zaddOptions
	i := 2
	for i < len(args) && p.condition(args[i]) {
		i++
	}
	items := args[i:]
	if len(items) == 0 || len(items)%3 != 0 || p.nx && p.xx {
		return fsm.Error(fsm.MsgSyntax)
	}
	scores, members := make([]float64, 0, len(items)/3), make([][]byte, 0, len(items)/3)
	for ; len(items) > 0; items = items[3:] {
		at, fail := parsePoint(items)
		if fail.IsError() {
			return fail
		}
		scores, members = append(scores, at.Score()), append(members, items[2])
	}
	return putScores(c, args[1], scores, members, p)
}

// cell returns the point of a member. o is a sorted set or nil.
func cell(o *keyspace.Object, member []byte) (p geo.Point, ok bool) {
	if o == nil {
		return p, false
	}
	score, ok := o.Coll.Score.Get(codec.View(member))
	return geo.PointOf(score), ok
}

// metersReply returns a distance in the format of Redis: always a string, never
// a double.
func metersReply(d float64) fsm.Reply { return fsm.Bulk(strconv.FormatFloat(d, 'f', 4, 64)) }

func geodist(c *fsm.Ctx, args [][]byte) fsm.Reply {
	unit := 1.0
	switch {
	case len(args) > 5:
		return fsm.Error(fsm.MsgSyntax)
	case len(args) == 5:
		var fail fsm.Reply
		if unit, fail = parseUnit(args[4]); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.LookupType(args[1], keyspace.TypeZSet)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	a, ok1 := cell(o, args[2])
	b, ok2 := cell(o, args[3])
	if !ok1 || !ok2 {
		return fsm.Null
	}
	return metersReply(geo.Distance(a, b) / unit)
}

// geoMembers returns an array with the reply for each member that args names.
// The reply is none for a member that does not exist.
func geoMembers(c *fsm.Ctx, args [][]byte, none fsm.Reply, of func(p geo.Point) fsm.Reply) fsm.Reply {
	o, wrong := c.LookupType(args[1], keyspace.TypeZSet)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	list := make([]fsm.Reply, len(args)-2)
	for i, member := range args[2:] {
		list[i] = none
		if p, ok := cell(o, member); ok {
			list[i] = of(p)
		}
	}
	return fsm.Array(list)
}

func geohash(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return geoMembers(c, args, fsm.Null, func(p geo.Point) fsm.Reply { return fsm.Bulk(p.Geohash()) })
}

func geopos(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return geoMembers(c, args, fsm.NullArray, pointReply)
}

// pointReply returns a point with up to 17 decimals, without trailing zeros.
func pointReply(p geo.Point) fsm.Reply {
	return fsm.Array([]fsm.Reply{
		fsm.DecimalDouble(number.FormatLongDouble(big.NewFloat(p.Lon))),
		fsm.DecimalDouble(number.FormatLongDouble(big.NewFloat(p.Lat))),
	})
}

const (
	georadiusComplexity = "O(N+log(M)) where N is the number of elements inside the bounding box of the circular " +
		"area delimited by center and radius and M is the number of items inside the index."
	geosearchComplexity = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area " +
		"around the shape provided as the filter and M is the number of items inside the shape"

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

	// geoMost is the maximum number of members that a search looks at. Looking
	// at this many members takes several seconds.
	geoMost = 1 << 22
)

var geoStoreAccess = fsm.Access{Mode: "OW", Flags: "update"}

// georadiusSpecs returns the key specs of GEORADIUS or GEORADIUSBYMEMBER. from
// is the index of the command's first option.
func georadiusSpecs(from int) []fsm.KeySpec {
	return []fsm.KeySpec{
		{Keys: fsm.KeysAt(1, 1, 1), Access: fsm.Access{Mode: "RO", Flags: "access"}},
		{Keyword: "STORE", Keys: fsm.Keys{First: from, Step: 1}, Access: geoStoreAccess},
		{Keyword: "STOREDIST", Keys: fsm.Keys{First: from, Step: 1}, Access: geoStoreAccess},
	}
}

func georadiusKeys(args [][]byte) []int         { return storeKeys(args, 6) }
func georadiusbymemberKeys(args [][]byte) []int { return storeKeys(args, 5) }

// storeKeys returns the positions of the source key and of the keys after every
// STORE and every STOREDIST. Redis checks the ACL rules only for the first key
// that follows one of these options, but writes to the last one, so a user of
// Redis can bypass the rules.
func storeKeys(args [][]byte, from int) []int {
	pos := []int{1}
	for _, word := range []string{"STORE", "STOREDIST"} {
		for i := from; i+1 < len(args); i++ {
			if fsm.IsWord(args[i], word) {
				pos = append(pos, i+1)
			}
		}
	}
	return pos
}

// parseCircle parses a radius and its unit into s.
func parseCircle(s *geo.Shape, args [][]byte) (fail fsm.Reply) {
	radius, ok := number.ParseFloat(args[0])
	switch {
	case !ok:
		return fsm.Error(msgGeoRadius)
	case radius < 0:
		return fsm.Error(msgGeoNegative)
	}
	s.Box, s.Radius = false, radius
	s.Unit, fail = parseUnit(args[1])
	return fail
}

// parseBox parses a width, a height and their unit into s.
func parseBox(s *geo.Shape, args [][]byte) (fail fsm.Reply) {
	width, ok1 := number.ParseFloat(args[0])
	height, ok2 := number.ParseFloat(args[1])
	switch {
	case !ok1:
		return fsm.Error(msgGeoWidth)
	case !ok2:
		return fsm.Error(msgGeoHeight)
	case width < 0 || height < 0:
		return fsm.Error(msgGeoBoxNegative)
	}
	s.Box, s.Width, s.Height = true, width, height
	s.Unit, fail = parseUnit(args[2])
	return fail
}

// geoPoint is a member that was found.
type geoPoint struct {
	container.Scored
	at       geo.Point
	distance float64 // in meters
	n        int     // the number of members that were found before this one
}

// geoFound collects the members that were found. It keeps at most twice as many
// members as the result may have, or 1024 if that is more, and from time to time
// drops the members that cannot be in the result.
type geoFound struct {
	points []geoPoint
	n      int   // the number of members that were found
	order  int   // 1 ascending, -1 descending, 0 unsorted
	count  int64 // the number of members to return; 0: all
	any    bool  // return the first members that are found
}

func (f *geoFound) add(m *container.Scored, at geo.Point, distance float64) {
	f.points = append(f.points, geoPoint{*m, at, distance, f.n})
	f.n++
	if f.count > 0 && int64(len(f.points)) >= max(2*min(f.count, geoMost), 1024) {
		f.cut()
	}
}

// enough reports whether the search can stop.
func (f *geoFound) enough() bool { return f.any && int64(f.n) >= f.count }

// cut sorts the members and drops the members that exceed the count. Members at
// equal distances keep their order. The order in Redis differs if COUNT drops
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

// searchArea collects the members of v in the area s. The parameter most limits
// how many members it looks at; beyond this limit, it returns an error.
func searchArea(c *fsm.Ctx, s *geo.Shape, v *keyspace.Collection, f *geoFound, most int) (fail fsm.Reply) {
	looked := 0
	var last geo.Cell
	for i, cell := range s.Cells() {
		if cell == (geo.Cell{}) || cell == last { // the same cell appears several times if the map has few cells
			continue
		}
		if i > 0 {
			last = cell
		}
		from, to := cell.Scores()
		start := v.Order.Search(func(m *container.Scored) bool { return m.Score < from })
		v.Order.Ascend(start, func(m *container.Scored) bool {
			if m.Score >= to || f.enough() {
				return false
			}
			c.Charge(stepsDistance)
			if looked++; looked > most {
				return false
			}
			at := geo.PointOf(m.Score)
			if d, in := s.Contains(at); in {
				c.ChargeMemory(geoPointBytes)
				f.add(m, at, d)
			}
			return true
		})
	}
	if looked > most {
		return fsm.Error(msgGeoMost)
	}
	chargeSort(c, len(f.points))
	f.cut()
	return fsm.Null
}

// geoFlags says which arguments a command of this family accepts.
type geoFlags byte

const (
	geoStores     geoFlags = 1 << iota // the options STORE and STOREDIST are allowed
	geoByMember                        // the middle of the area is given by a member
	geoSearch                          // the command is GEOSEARCH or GEOSEARCHSTORE
	geoSearchInto                      // the command is GEOSEARCHSTORE
)

// geoQuery has the parsed arguments of a command.
type geoQuery struct {
	flags geoFlags
	src   *keyspace.Object // the sorted set, or nil
	shape geo.Shape
	found geoFound

	withDist, withHash, withCoord bool

	// stores is set if the result is stored. The field into is the key that
	// receives it.
	stores    bool
	into      []byte
	storeDist bool

	// from is set if GEOSEARCH has an option for the middle of the area. by is
	// set if it has an option for the shape.
	from, by bool
	member   bool // the middle is given by a member
}

// option parses the option at the start of args. n is the number of arguments
// that the option takes, including its name. n is 0 if args does not start with
// an option.
func (q *geoQuery) option(args [][]byte) (n int, fail fsm.Reply) {
	more := len(args) - 1
	set := func(b *bool) (int, fsm.Reply) { *b = true; return 1, fsm.Null }
	order := func(n int) (int, fsm.Reply) { q.found.order = n; return 1, fsm.Null }
	stores, searches := q.flags&geoStores != 0, q.flags&geoSearch != 0
	switch word := args[0]; {
	case fsm.IsWord(word, "WITHDIST"):
		return set(&q.withDist)
	case fsm.IsWord(word, "WITHHASH"):
		return set(&q.withHash)
	case fsm.IsWord(word, "WITHCOORD"):
		return set(&q.withCoord)
	case fsm.IsWord(word, "ANY"):
		return set(&q.found.any)
	case fsm.IsWord(word, "ASC"):
		return order(1)
	case fsm.IsWord(word, "DESC"):
		return order(-1)
	case fsm.IsWord(word, "COUNT") && more >= 1:
		var ok bool
		q.found.count, ok = number.ParseInt(args[1])
		switch {
		case !ok:
			fail = fsm.Error(fsm.MsgNotInt)
		case q.found.count <= 0:
			fail = fsm.Error(msgGeoCount)
		}
		return 2, fail
	case stores && fsm.IsWord(word, "STORE") && more >= 1:
		q.stores, q.into, q.storeDist = true, args[1], false
		return 2, fsm.Null
	case stores && fsm.IsWord(word, "STOREDIST") && more >= 1:
		q.stores, q.into, q.storeDist = true, args[1], true
		return 2, fsm.Null
	case q.flags&geoSearchInto != 0 && fsm.IsWord(word, "STOREDIST"):
		return set(&q.storeDist)
	case searches && fsm.IsWord(word, "FROMMEMBER") && more >= 1 && (!q.from || q.member):
		q.from, q.member = true, true
		return 2, q.center(args[1])
	case searches && fsm.IsWord(word, "FROMLONLAT") && more >= 2 && !q.member:
		q.from = true
		q.shape.Center, fail = parsePoint(args[1:])
		return 3, fail
	case searches && fsm.IsWord(word, "BYRADIUS") && more >= 2 && (!q.by || !q.shape.Box):
		q.by = true
		return 3, parseCircle(&q.shape, args[1:])
	case searches && fsm.IsWord(word, "BYBOX") && more >= 3 && (!q.by || q.shape.Box):
		q.by = true
		return 4, parseBox(&q.shape, args[1:])
	}
	return 0, fsm.Error(fsm.MsgSyntax)
}

// center makes a member the middle of the area. If the key does not exist,
// center succeeds, and the other arguments are still parsed.
func (q *geoQuery) center(member []byte) (fail fsm.Reply) {
	if q.src == nil {
		return fsm.Null
	}
	var ok bool
	if q.shape.Center, ok = cell(q.src, member); !ok {
		return fsm.Error(msgGeoMember)
	}
	return fsm.Null
}

// parse parses the arguments in the same order as Redis, because the order
// decides which error is reported.
func (q *geoQuery) parse(args [][]byte) (fail fsm.Reply) {
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
			fail = parseCircle(&q.shape, args[3:])
		}
	default:
		options = args[6:]
		if q.shape.Center, fail = parsePoint(args[2:]); !fail.IsError() {
			fail = parseCircle(&q.shape, args[4:])
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
		return fsm.Error("ERR " + name + msgGeoStoreWith)
	case q.flags&geoSearch != 0 && !q.from:
		return fsm.Error("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for " + command)
	case q.flags&geoSearch != 0 && !q.by:
		return fsm.Error("ERR exactly one of BYRADIUS and BYBOX can be specified for " + command)
	case q.found.any && q.found.count == 0:
		return fsm.Error(msgGeoAny)
	case q.found.count > 0 && q.found.order == 0 && !q.found.any:
		q.found.order = 1
	}
	return fsm.Null
}

func georadius(c *fsm.Ctx, args [][]byte) fsm.Reply   { return searchAndReply(c, args, geoStores) }
func georadiusRO(c *fsm.Ctx, args [][]byte) fsm.Reply { return searchAndReply(c, args, 0) }
func georadiusbymember(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return searchAndReply(c, args, geoByMember|geoStores)
}
func georadiusbymemberRO(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return searchAndReply(c, args, geoByMember)
}
func geosearch(c *fsm.Ctx, args [][]byte) fsm.Reply { return searchAndReply(c, args, geoSearch) }
func geosearchstore(c *fsm.Ctx, args [][]byte) fsm.Reply {
	return searchAndReply(c, args, geoSearch|geoSearchInto)
}

func searchAndReply(c *fsm.Ctx, args [][]byte, flags geoFlags) fsm.Reply {
	key := args[1]
	if flags&geoSearchInto != 0 {
		key = args[2]
	}
	o, wrong := c.LookupType(key, keyspace.TypeZSet)
	if wrong {
		return fsm.Error(fsm.MsgWrongType)
	}
	q := geoQuery{flags: flags, src: o}
	if fail := q.parse(args); fail.IsError() {
		return fail
	}
	if o != nil {
		if fail := searchArea(c, &q.shape, o.Coll, &q.found, geoMost); fail.IsError() {
			return fail
		}
	}
	if q.stores {
		return geoStore(c, &q)
	}
	return q.reply(c)
}

// geoStore writes the members that the search has found to a sorted set.
func geoStore(c *fsm.Ctx, q *geoQuery) fsm.Reply {
	event := "georadiusstore"
	if q.flags&geoSearch != 0 {
		event = "geosearchstore"
	}
	n := open(c, nil, q.into, keyspace.TypeZSet)
	found := make([]container.Scored, len(q.found.points))
	for i := range q.found.points {
		p := &q.found.points[i]
		c.Charge(stepsScore)
		found[i] = p.Scored
		if q.storeDist {
			found[i].Score = p.distance / q.shape.Unit
		}
	}
	n.Coll.FillScores(c.Owner(), found)
	return storeResult(c, n, "z", event)
}

func (q *geoQuery) reply(c *fsm.Ctx) fsm.Reply {
	l := collector{c: c}
	for i := range q.found.points {
		p := &q.found.points[i]
		r := fsm.Bulk(p.Member)
		if q.withDist || q.withHash || q.withCoord {
			r = fsm.Array(q.describe(p))
		}
		if q.withCoord {
			l.size += coordBytes
		}
		if !l.add(r) {
			break
		}
	}
	return l.reply(fsm.Array)
}

// coordBytes is the approximate size of two coordinates in a reply, in bytes.
const coordBytes = 50

// describe returns the elements of the reply for a member: its name and the
// details that the options request.
func (q *geoQuery) describe(p *geoPoint) []fsm.Reply {
	elems := []fsm.Reply{fsm.Bulk(p.Member)}
	if q.withDist {
		elems = append(elems, metersReply(p.distance/q.shape.Unit))
	}
	if q.withHash {
		elems = append(elems, fsm.Int(int64(p.Score)))
	}
	if q.withCoord {
		elems = append(elems, pointReply(p.at))
	}
	return elems
}
