package resp

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// LimitFlag is the value of a command-line flag that limits what clients may
// do. CONFIG GET prints it under limitPrefix and the name of the flag. INFO
// prints it in the section holdfast, and the metrics contain it as
// holdfast_limit.
type LimitFlag struct {
	Value  string
	Number float64 // the value as a number; seconds for a duration
}

// limitPrefix distinguishes the program's own limits from the parameters of
// Redis.
const limitPrefix = "holdfast-"

// limitSettings returns the limits as CONFIG GET prints them.
func (s *Server) limitSettings() map[string]string {
	all := make(map[string]string)
	for name, f := range s.cfg.LimitFlags {
		all[limitPrefix+name] = f.Value
	}
	return all
}

// limitRefusal returns the reason for which CONFIG SET rejects a setting that
// is a limit of the program. It returns "" for any other setting.
func limitRefusal(name string) string {
	if !strings.HasPrefix(name, limitPrefix) {
		return ""
	}
	return "it is set by --" + strings.TrimPrefix(name, limitPrefix) + " when the node starts"
}

// infoLimits prints the limits in the section holdfast of INFO.
func infoLimits(p *infoPage) {
	flags := p.srv.cfg.LimitFlags
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		p.line("limit_"+strings.ReplaceAll(name, "-", "_"), flags[name].Value)
	}
}

var descLimit = prometheus.NewDesc("holdfast_limit", "Value of a flag that limits what clients may do; seconds for a duration.", []string{"flag"}, nil)

// collectLimits sends the limits to Prometheus.
func collectLimits(flags map[string]LimitFlag, ch chan<- prometheus.Metric) {
	for name, f := range flags {
		ch <- prometheus.MustNewConstMetric(descLimit, prometheus.GaugeValue, f.Number, name)
	}
}
