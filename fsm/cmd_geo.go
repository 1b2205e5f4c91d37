package fsm

import (
	"math"
	"math/big"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/number"
)

var geoCommands = []Command{
	{
		Name: "geoadd", Run: geoadd, Arity: -5, Flags: Write | DenyOOM, Keys: Keys{1, 1, 1},
		Access: Access{Mode: "RW", Flags: "update"},
		Group:  "geo", Since: "3.2.0",
		Complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
		Syntax:     "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
		Doc:        "Add one or more geospatial items in the geospatial index represented using a sorted set",
		History:    []Change{{"6.2.0", "Added the `CH`, `NX` and `XX` options."}},
	},
	{
		Name: "geodist", Run: geodist, Arity: -4, Flags: ReadOnly, Keys: Keys{1, 1, 1},
		Access: Access{Mode: "RO", Flags: "access"},
		Group:  "geo", Since: "3.2.0",
		Complexity: "O(log(N))",
		Syntax:     "key member1 member2 [M | KM | FT | MI]",
		Doc:        "Returns the distance between two members of a geospatial index",
	},
	{
		Name: "geohash", Run: geohash, Arity: -2, Flags: ReadOnly, Keys: Keys{1, 1, 1},
		Access: Access{Mode: "RO", Flags: "access"},
		Group:  "geo", Since: "3.2.0",
		Complexity: "O(log(N)) for each member requested, where N is the number of elements in the sorted set.",
		Syntax:     "key member [member ...]",
		Doc:        "Returns members of a geospatial index as standard geohash strings",
	},
	{
		Name: "geopos", Run: geopos, Arity: -2, Flags: ReadOnly, Keys: Keys{1, 1, 1},
		Access: Access{Mode: "RO", Flags: "access"},
		Group:  "geo", Since: "3.2.0",
		Complexity: "O(N) where N is the number of members requested.",
		Syntax:     "key member [member ...]",
		Doc:        "Returns longitude and latitude of members of a geospatial index",
	},
}

const msgGeoUnit = "ERR unsupported unit provided. please use M, KM, FT, MI"

// parsePoint parses a longitude and a latitude.
func parsePoint(args [][]byte) (p point, fail Reply) {
	var ok1, ok2 bool
	p.lon, ok1 = number.ParseFloat(args[0])
	p.lat, ok2 = number.ParseFloat(args[1])
	switch {
	case !ok1 || !ok2:
		return p, Error(msgNotFloat)
	case !p.valid():
		return p, Error("ERR invalid longitude,latitude pair " + sixDecimals(p.lon) + "," + sixDecimals(p.lat))
	}
	return p, Null
}

// sixDecimals formats a number as C's %f does.
func sixDecimals(f float64) string {
	if math.IsInf(f, 0) {
		return number.FormatDouble(f)
	}
	return strconv.FormatFloat(f, 'f', 6, 64)
}

// parseUnit returns the length of a unit in meters.
func parseUnit(arg []byte) (meters float64, fail Reply) {
	switch {
	case fold(arg, "M"):
		return 1, Null
	case fold(arg, "KM"):
		return 1000, Null
	case fold(arg, "FT"):
		return 0.3048, Null
	case fold(arg, "MI"):
		return 1609.34, Null
	}
	return 0, Error(msgGeoUnit)
}

func geoadd(c *Ctx, args [][]byte) Reply {
	var p zaddOptions
	i := 2
	for i < len(args) && p.condition(args[i]) {
		i++
	}
	items := args[i:]
	if len(items) == 0 || len(items)%3 != 0 || p.nx && p.xx {
		return Error(msgSyntax)
	}
	scores, members := make([]float64, 0, len(items)/3), make([][]byte, 0, len(items)/3)
	for ; len(items) > 0; items = items[3:] {
		at, fail := parsePoint(items)
		if fail.IsError() {
			return fail
		}
		scores, members = append(scores, at.score()), append(members, items[2])
	}
	return c.putScores(args[1], scores, members, p)
}

// cell returns the point of a member. o is a sorted set or nil.
func cell(o *object, member []byte) (p point, ok bool) {
	if o == nil {
		return p, false
	}
	score, ok := o.coll.score.get(viewString(member))
	return pointOf(score), ok
}

// metersReply returns a distance in the format of Redis: always a string, never
// a double.
func metersReply(d float64) Reply { return Bulk(strconv.FormatFloat(d, 'f', 4, 64)) }

func geodist(c *Ctx, args [][]byte) Reply {
	unit := 1.0
	switch {
	case len(args) > 5:
		return Error(msgSyntax)
	case len(args) == 5:
		var fail Reply
		if unit, fail = parseUnit(args[4]); fail.IsError() {
			return fail
		}
	}
	o, wrong := c.lookupType(args[1], typeZSet)
	if wrong {
		return Error(msgWrongType)
	}
	a, ok1 := cell(o, args[2])
	b, ok2 := cell(o, args[3])
	if !ok1 || !ok2 {
		return Null
	}
	return metersReply(distance(a, b) / unit)
}

// geoMembers returns an array with the reply for each member that args names.
// The reply is none for a member that does not exist.
func (c *Ctx) geoMembers(args [][]byte, none Reply, of func(p point) Reply) Reply {
	o, wrong := c.lookupType(args[1], typeZSet)
	if wrong {
		return Error(msgWrongType)
	}
	list := make([]Reply, len(args)-2)
	for i, member := range args[2:] {
		list[i] = none
		if p, ok := cell(o, member); ok {
			list[i] = of(p)
		}
	}
	return Array(list)
}

func geohash(c *Ctx, args [][]byte) Reply {
	return c.geoMembers(args, Null, func(p point) Reply { return Bulk(p.geohash()) })
}

func geopos(c *Ctx, args [][]byte) Reply { return c.geoMembers(args, NullArray, point.reply) }

// reply returns the point with up to 17 decimals, without trailing zeros.
func (p point) reply() Reply {
	return Array([]Reply{
		DecimalDouble(number.FormatLongDouble(big.NewFloat(p.lon))),
		DecimalDouble(number.FormatLongDouble(big.NewFloat(p.lat))),
	})
}
