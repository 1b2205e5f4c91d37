package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// conditions returns the conditions of a measurement, such as the machine and
// the versions, as pairs of a name and a text. volatile reports whether the
// data is in memory.
func conditions(ctx context.Context, dir string, t tools, o options) (lines [][2]string, volatile bool, err error) {
	commit := "unknown"
	if b, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--tags").Output(); err == nil {
		commit = strings.TrimSpace(string(b))
	}
	fsync, err := fsyncTime(dir)
	if err != nil {
		return nil, false, err
	}
	var u syscall.Utsname
	if err := syscall.Uname(&u); err != nil {
		return nil, false, fmt.Errorf("uname: %w", err)
	}
	fs, volatile, err := fileSystem(dir)
	if err != nil {
		return nil, false, err
	}
	return [][2]string{
		{"date", time.Now().UTC().Format(time.RFC3339)},
		{"machine", fmt.Sprintf("%d CPUs, %s, %s", runtime.NumCPU(), cpuModel(), memory())},
		{"kernel", charsOf(u.Release[:])},
		{"data", fmt.Sprintf("%s; 512 B and fdatasync: %v at the median", fs, fsync)},
		{"holdfast", fmt.Sprintf("%s, %s, processes on loopback, %s", commit, runtime.Version(),
			cmp.Or(o.serve, "default flags"))},
		{"redis", fmt.Sprintf("%s; 1 process, %s", version(ctx, t.server), strings.Join(quoted(redisFlags), " "))},
		{"load", fmt.Sprintf("%s -r %s, about %.1f s a run, median of %d", version(ctx, t.benchmark), keyspace,
			o.seconds, o.reps)},
		{"load average at the start", loadAverage()},
	}, volatile, nil
}

// printMachine describes the machine and the conditions of the measurement.
func printMachine(ctx context.Context, m machine) error {
	out := m.out
	lines, volatile, err := conditions(ctx, m.dir, m.tools, m.o)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, line := range append(lines, [2]string{"directory", m.dir}, [2]string{"placement", m.place.String()}) {
		fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if volatile {
		fmt.Fprintln(out, "\nWARNING: the data is in memory, where fsync costs nothing: set TMPDIR to a directory on "+
			"a disk.")
	}
	fmt.Fprintln(out)
	return nil
}

func quoted(words []string) []string {
	words = slices.Clone(words)
	for i, w := range words {
		if w == "" {
			words[i] = `""`
		}
	}
	return words
}

// version returns the first line that a program prints for --version, without
// the hash of the source and the text after it.
func version(ctx context.Context, program string) string {
	b, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return filepath.Base(program) + ": " + err.Error()
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if v, _, ok := strings.Cut(line, " sha="); ok {
		return v
	}
	return line
}

// fsyncTime returns the median time that the disk needs for one small durable
// write.
func fsyncTime(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	block := bytes.Repeat([]byte("x"), 512)
	var took []time.Duration
	for range 300 {
		begun := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("fdatasync: %w", err)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return median(took).Round(time.Microsecond), nil
}

// fileSystem returns the name of the file system of a directory. volatile
// reports whether the file system keeps its files in memory.
func fileSystem(dir string) (name string, volatile bool, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "", false, fmt.Errorf("statfs: %w", err)
	}
	switch uint32(s.Type) {
	case 0xef53:
		return "ext4", false, nil
	case 0x58465342:
		return "xfs", false, nil
	case 0x9123683e:
		return "btrfs", false, nil
	case 0x794c7630:
		return "overlayfs", false, nil
	case 0x01021994, 0x858458f6:
		return "tmpfs", true, nil
	}
	return fmt.Sprintf("file system %#x", uint32(s.Type)), false, nil
}

func cpuModel() string { return field("/proc/cpuinfo", "model name") }

func memory() string { return "memory " + field("/proc/meminfo", "MemTotal") }

// field returns the value of a name in a file of lines "name : value", or
// "unknown".
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ") + " (other work on this machine spoils the figures)"
}

// charsOf returns a zero-terminated string as a Go string.
func charsOf[T int8 | uint8](chars []T) string {
	var b []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

// median returns the median of sorted values.
func median[T int64 | float64 | time.Duration](sorted []T) T {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// rates returns the commands per second of the samples, sorted.
func rates(samples []sample) []float64 {
	var r []float64
	for _, s := range samples {
		r = append(r, s.rps)
	}
	slices.Sort(r)
	return r
}

// printResults prints the table and reports whether a floor was missed.
func printResults(out io.Writer, results []result) (missed bool, err error) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "\nROW\tTHROUGH\tOPS/S\tMIN-MAX\tP50 MS\tP99 MS\tOF REDIS\tFLOOR\tOF OUR LEADER\tFLOOR\t")
	for _, r := range results {
		redis, leader := median(rates(r.redis)), median(rates(r.leader))
		for _, line := range []struct {
			through            string
			samples            []sample
			ofRedis, redisWant float64
			ofOwn, ownWant     float64
		}{
			{"redis", r.redis, 0, 0, 0, 0},
			{"leader", r.leader, leader / redis, r.leaderFloor, 0, 0},
			{"follower", r.follower, 0, r.followerFloor, 0, r.ownFloor},
		} {
			if len(line.samples) == 0 {
				continue
			}
			all := rates(line.samples)
			if line.through == "follower" {
				line.ofRedis, line.ofOwn = median(all)/redis, median(all)/leader
			}
			verdict := ""
			if line.redisWant > 0 || line.ownWant > 0 {
				verdict = "ok"
			}
			if line.ofRedis < line.redisWant || line.ofOwn < line.ownWant {
				verdict, missed = "MISSED", true
			}
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f-%.0f\t%.3f\t%.3f\t%s\t%s\t%s\t%s\t%s\n", r.name, line.through,
				median(all), all[0], all[len(all)-1],
				middle(line.samples, func(s sample) float64 { return s.p50 }),
				middle(line.samples, func(s sample) float64 { return s.p99 }),
				share(line.ofRedis), share(line.redisWant), share(line.ofOwn), share(line.ownWant), verdict)
		}
	}
	return missed, w.Flush()
}

// middle returns the median of one of the numbers in the samples.
func middle(samples []sample, of func(sample) float64) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, of(s))
	}
	slices.Sort(all)
	return median(all)
}

func share(f float64) string {
	if f == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", f)
}
