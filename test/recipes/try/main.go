// Command try runs one recipe of test/recipes on a running cluster:
//
//	go run ./test/recipes/try -addrs 127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381 token
//
// In the middle of the recipe it waits for Enter, so that there is time to kill
// a node.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/test/recipes"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "try:", err)
		os.Exit(1)
	}
}

func run() error {
	addrs := flag.String("addrs", "127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381", "client addresses of the nodes, separated by commas")
	others := flag.String("others", "", "addresses of two more clusters, for redlock")
	stop := flag.Bool("stop", true, "wait for Enter in the middle")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: try [flags] RECIPE")
		flag.PrintDefaults()
		for _, r := range recipes.All() {
			fmt.Fprintf(os.Stderr, "  %-12s %s\n", r.Name, r.Doc)
		}
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		return errors.New("name one recipe")
	}
	r, err := recipes.Find(flag.Arg(0))
	if err != nil {
		return err
	}
	e := &recipes.Env{Addrs: strings.Split(*addrs, ",")}
	if *others != "" {
		e.Others = strings.Split(*others, ",")
	}
	e.Middle = func() {
		if *stop {
			fmt.Print("half way: kill -9 a node now if you like, then press Enter ")
			if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
				fmt.Println("(not a terminal: continuing)")
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	begun := time.Now()
	if err := errors.Join(r.Run(ctx, e), e.Close()); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	fmt.Printf("%s: kept its promise, in %v\n", r.Name, time.Since(begun).Round(time.Millisecond))
	return nil
}
