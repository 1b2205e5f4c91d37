// Command plots draws the data that the sweeps of test/bench have written, and
// puts the tables into docs/performance.md. It measures nothing. It is a
// separate module, so that Holdfast does not depend on the drawing libraries.
//
//	cd test/bench/plots && go run . -root ../../..
//
// If the profiles exist, the program also divides the totals of "cost" and
// "memory" by cause, and adds the shares to the data.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-kv/holdfast/test/bench/record"
)

func main() {
	root := flag.String("root", "../../..", "top folder of the project")
	data := flag.String("data", "docs/data", "directory with the data, below the root")
	images := flag.String("images", "docs/images", "directory for the plots, below the root")
	page := flag.String("page", "docs/performance.md", "page with the tables, below the root")
	profiles := flag.String("profiles", "bin/profiles", "directory with the profiles, below the root; none is needed "+
		"if the data has the shares already")
	flag.Parse()
	err := errors.New("wrong arguments")
	if flag.NArg() == 0 {
		p := artist{data: filepath.Join(*root, *data), images: filepath.Join(*root, *images),
			profiles: filepath.Join(*root, *profiles), blocks: make(map[string]string)}
		err = p.run(filepath.Join(*root, *page))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

// artist draws the data and collects the blocks of the page.
type artist struct {
	data, images, profiles string

	blocks map[string]string // text by the name of the block
}

// run draws all data and rewrites the page.
func (p *artist) run(page string) error {
	for _, a := range axes {
		if err := p.sweep(a); err != nil {
			return err
		}
	}
	for _, d := range divisions {
		if err := p.divide(d); err != nil {
			return err
		}
	}
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text := string(b)
	for name, block := range p.blocks {
		if text, err = replaceBlock(text, name, block); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	return record.WriteFile(page, []byte(text))
}

// sweep draws the plots of one axis and makes its table.
func (p *artist) sweep(a axis) error {
	name := "growth-" + a.name
	s, err := record.Read[record.Sweep](filepath.Join(p.data, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("%s: no data\n", name)
		return nil
	}
	if err != nil {
		return err
	}
	p.blocks[name] = a.table(s) + "\n" + provenance(s.Header)
	if err := p.draw(name, s, a.speed); err != nil {
		return err
	}
	if a.memory {
		return p.draw("growth-memory", s, a.bytes)
	}
	return nil
}

// draw draws a figure of a sweep.
func (p *artist) draw(name string, s *record.Sweep, figureOf func(*record.Sweep) (*figure, error)) error {
	f, err := figureOf(s)
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	b, err := f.svg()
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	return record.WriteFile(filepath.Join(p.images, name+".svg"), b)
}

// divide divides the totals of one measurement by cause, and makes its table.
func (p *artist) divide(d division) error {
	name := "growth-" + d.name
	path := filepath.Join(p.data, name+".json")
	all, err := record.Read[record.Profiles](path)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("%s: no data\n", name)
		return nil
	}
	if err != nil {
		return err
	}
	for i := range all.Rows {
		row := &all.Rows[i]
		if row.File == "" {
			continue
		}
		shares, err := d.shares(filepath.Join(p.profiles, row.File))
		switch {
		case err == nil:
			row.Shares = shares
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case row.Shares == nil:
			return fmt.Errorf("%s has a row without shares, and the profile of that row is missing "+
				"(run make growth GROWTH=%s): %w", path, d.name, err)
		}
	}
	if err := record.Write(path, all); err != nil {
		return err
	}
	p.blocks[name] = d.table(d, all.Rows) + "\n" + provenance(all.Header)
	return nil
}
