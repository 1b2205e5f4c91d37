// Command postgresql shows how a table refuses a late write of a former owner of a
// lock. A column of each row contains the highest fencing token with which the row
// was written. An UPDATE with a lower token changes nothing.
//
//	go run ./lock/examples/postgresql -addr 127.0.0.1:6380,127.0.0.1:6381 \
//		-dsn 'postgres://me@127.0.0.1/test?sslmode=disable'
//
// The program creates the table lock_example if it does not exist.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	_ "github.com/lib/pq" // the driver of database/sql
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/lock"
)

func main() {
	addrs := flag.String("addr", "127.0.0.1:6379", "addresses of the nodes, separated by commas")
	dsn := flag.String("dsn", "", "the PostgreSQL database")
	flag.Parse()
	if err := run(context.Background(), strings.Split(*addrs, ","), *dsn); err != nil {
		fmt.Fprintln(os.Stderr, "postgresql:", err)
		os.Exit(1)
	}
}

// errOldToken means that a later owner of the lock has already written the row.
var errOldToken = errors.New("a later owner has written the row")

// schema creates the table. The column token contains the highest token with which
// the row was written.
const schema = `CREATE TABLE IF NOT EXISTS lock_example (
	id text PRIMARY KEY, balance bigint NOT NULL, token bigint NOT NULL DEFAULT 0)`

// deposit adds amount to the balance of an account, on behalf of the owner with the
// given token. PostgreSQL locks the row while it compares the token, so no other
// write of the row can happen between the comparison and the change.
func deposit(ctx context.Context, db *sql.DB, account string, amount, token int64) error {
	res, err := db.ExecContext(ctx,
		`UPDATE lock_example SET balance = balance + $1, token = $2 WHERE id = $3 AND token <= $2`,
		amount, token, account)
	if err != nil {
		return err
	}
	switch n, err := res.RowsAffected(); {
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("token %d: %w", token, errOldToken)
	}
	return nil
}

func run(ctx context.Context, addrs []string, dsn string) error {
	nodes, err := lock.NewNodes(addrs, redis.Options{})
	if err != nil {
		return err
	}
	defer nodes.Close()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	const account = "go"
	for _, statement := range []string{schema, `INSERT INTO lock_example (id, balance) VALUES ('` + account + `', 0)
		ON CONFLICT (id) DO UPDATE SET balance = 0`} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}

	first, err := lock.Acquire(ctx, nodes, "account:"+account)
	if err != nil {
		return err
	}
	if err := deposit(ctx, db, account, 10, first.Token()); err != nil {
		return err
	}
	// LOCK BREAK ends the first owner's grant. If the process of that owner were
	// paused, the grant would end with the lease. The first owner does not know yet
	// that its grant has ended.
	if err := nodes.Do(ctx, "LOCK", "BREAK", "account:"+account).Err(); err != nil {
		return err
	}
	second, err := lock.Acquire(ctx, nodes, "account:"+account)
	if err != nil {
		return err
	}
	if err := deposit(ctx, db, account, 100, second.Token()); err != nil {
		return err
	}
	if err := deposit(ctx, db, account, 1000, first.Token()); !errors.Is(err, errOldToken) {
		return fmt.Errorf("a late write of the former owner: %v, want %v", err, errOldToken)
	}
	if err := first.Release(ctx); !errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("release by the former owner: %v, want %v", err, lock.ErrLost)
	}
	if err := second.Release(ctx); err != nil {
		return err
	}
	var balance int64
	row := db.QueryRowContext(ctx, `SELECT balance FROM lock_example WHERE id = $1`, account)
	if err := row.Scan(&balance); err != nil {
		return err
	}
	fmt.Printf("balance %d: the late write was refused\n", balance)
	return nil
}
