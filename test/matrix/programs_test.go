package matrix

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programEntries are programs in other languages. Each gets the host and the port
// of a follower, and the addresses of the Sentinels. In the middle, the program
// prints "half" and waits for a line on its standard input. At the end it prints
// "ok".
var programEntries = []entry{
	{lib: "redis-py", deb: "python3-redis", mode: "standalone",
		what: "Lock: acquire, extend, reacquire, release among four threads",
		run:  script("/usr/bin/python3", "lock.py"), probe: []string{"/usr/bin/python3", "-c", "import redis"}},
	{lib: "redis-py", deb: "python3-redis", mode: "Sentinel", what: "master_for, Lock; follows the leader",
		run: script("/usr/bin/python3", "sentinel.py"), nodes: sentinel,
		probe: []string{"/usr/bin/python3", "-c", "import redis.sentinel"}},
	{lib: "redis-rb (ruby-redis)", deb: "ruby-redis", mode: "standalone",
		what: "SET NX PX, EVALSHA compare-and-delete among four threads", run: script("ruby", "lock.rb", "standalone"),
		probe: []string{"ruby", "-e", "require 'redis'"}},
	{lib: "redis-rb (ruby-redis)", deb: "ruby-redis", mode: "Sentinel", what: "the same; follows the leader",
		run: script("ruby", "lock.rb", "sentinel"), nodes: sentinel, probe: []string{"ruby", "-e", "require 'redis'"}},
	{lib: "phpredis", deb: "php-redis", mode: "standalone", what: "SET NX PX, eval, evalSha, MULTI",
		run: script("php", "phpredis.php"), probe: []string{"php", "-r", "exit(class_exists('Redis') ? 0 : 1);"}},
	{lib: "symfony/lock over phpredis", deb: "php-symfony-lock", mode: "standalone",
		what: "LockFactory: acquire, refresh, isAcquired, release", run: script("php", "symfony.php"),
		probe: []string{"php", "-r", "require 'Symfony/Component/Lock/autoload.php';"}},
	{lib: "Laravel cache locks over phpredis", deb: "php-laravel-framework", mode: "standalone",
		what: "RedisLock (PhpRedisLock): get, owner, release, block; Cache::add", run: script("php", "laravel.php"),
		probe: []string{"php", "-r", "require 'Illuminate/autoload.php';"}},
	{lib: "node-redis", deb: "node-redis", mode: "standalone", what: "SET NX PX, defined script, MULTI, pub/sub",
		run: script("node", "lock.js"), probe: []string{"node", "-e", "require('redis')"}},
	{lib: "hiredis", deb: "libhiredis-dev", mode: "standalone", what: "SET NX PX, EVAL compare-and-delete, pipelines",
		run: hiredis, probe: []string{"sh", "-c", "command -v gcc && test -e /usr/include/hiredis/hiredis.h"}},
}

// script returns a function that runs a program from testdata.
func script(interpreter, file string, args ...string) func(context.Context, *arena) error {
	return func(ctx context.Context, a *arena) error {
		return a.program(ctx, interpreter, append([]string{filepath.Join("testdata", file)}, args...)...)
	}
}

// programEnv returns the environment of the programs. NODE_PATH lets a Node.js
// that is not from Debian find Debian's libraries.
func programEnv() []string { return append(os.Environ(), "NODE_PATH=/usr/share/nodejs") }

// program runs a program, and kills the leader when the program prints "half".
func (a *arena) program(ctx context.Context, name string, args ...string) error {
	host, port, err := net.SplitHostPort(a.entry)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, name, append(args, host, port, strings.Join(a.sentinels, ","))...)
	cmd.Env = programEnv()
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var problems strings.Builder
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		return err
	}
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if lines.Text() == "half" {
			a.killLeader()
			if _, err := fmt.Fprintln(in, "go on"); err != nil {
				return fmt.Errorf("tell %s to continue: %w", name, err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || len(said) == 0 || said[len(said)-1] != "ok" {
		return fmt.Errorf("%s %v: error %v\nprinted %q\n%s", name, args, err, said, problems.String())
	}
	return nil
}

func hiredis(ctx context.Context, a *arena) error {
	dir, err := os.MkdirTemp("", "holdfast-hiredis-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "lock")
	compile := exec.CommandContext(ctx, "gcc", "-Wall", "-o", binary, "testdata/lock.c", "-lhiredis")
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("compile: %w: %s", err, out)
	}
	return a.program(ctx, binary)
}
