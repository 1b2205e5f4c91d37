package dashboard_test

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// rules is a script with a function that returns the violations of a page. The
// function checks rules of WCAG 2.2 AA, for example about names, headings,
// landmarks, references, tables, contrast and the size of targets.
//
//go:embed rules.js
var rules string

// accessible checks the page against the rules.
func (b *tab) accessible() {
	b.t.Helper()
	b.run(chromedp.Evaluate(rules, nil))
	for _, v := range eval[[]string](b, "violations()") {
		b.t.Errorf("%s: %s", eval[string](b, "location.pathname"), v)
	}
}

// maxTabs bounds the number of elements that the method keyboard visits, because
// a table may have many links.
const maxTabs = 30

// keyboard checks three things: that the key Tab reaches the elements of the
// page in their order, that the focus is visible, and that the first element is
// a link to the main content.
func (b *tab) keyboard() {
	b.t.Helper()
	b.run(chromedp.Evaluate(rules, nil))
	page := eval[string](b, "location.pathname")
	eval[bool](b, "(document.activeElement.blur(), window.getSelection().removeAllRanges(), true)")
	n := min(eval[int](b, "controls().length"), maxTabs)
	for i := range n {
		b.run(chromedp.KeyEvent(kb.Tab))
		if at := eval[int](b, "controls().indexOf(document.activeElement)"); at != i {
			b.t.Errorf("%s: Tab number %d goes to element %d: %s", page, i, at,
				eval[string](b, "document.activeElement.outerHTML.slice(0, 120)"))
			return
		}
		if problem := eval[string](b, "focusProblem()"); problem != "" {
			b.t.Errorf("%s: %s", page, problem)
		}
	}
	eval[bool](b, "(controls()[0].focus(), true)")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until("document.activeElement.id === 'main'")
}

// TestRules checks that the rules find violations. The case without HTML is a
// correct page. Each other case adds one violation to it.
func TestRules(t *testing.T) {
	b := newTab(t, browser(t), 1200, 760)
	const page = `<!doctype html><html lang="en"><title>t</title><body style="background:#fff;color:#000"><header>h
		<nav aria-label="n"><a href="/" style="display:inline-block;padding:9px">home</a></nav></header><main><h1>a</h1>
		<h2>b</h2><label>name <input style="height:26px"></label>%s</main></body></html>`
	for html, want := range map[string]string{
		"":                                      "",
		"<input>":                               "no name",
		"<button></button>":                     "no name",
		"<h4>x</h4>":                            "after h2",
		"<h1>x</h1>":                            "2 main headings",
		"<img src='data:,'>":                    "no name",
		"<svg role=img></svg>":                  "no name",
		"<p style='color:#999'>x</p>":           "contrast",
		"<svg><text fill=#aaa>x</text></svg>":   "contrast",
		"<p id=x></p><p id=x></p>":              "id twice",
		"<section aria-labelledby=y></section>": "names no element",
		"<table aria-label=x><tr><th>a</th></tr></table>":                       "scope",
		"<table><tr><td>a</td></tr></table>":                                    "table without a name",
		"<a href=/ tabindex=-1>a link</a>":                                      "not reachable",
		"<a href=/ tabindex=3>a link</a>":                                       "order",
		"<button style='width:9px;height:9px;padding:0' aria-label=x></button>": "small",
		"<div style='overflow:auto;width:9px;height:9px'>scrolled text</div>":   "cannot be scrolled",
		"<label>field <input style='border:1px solid #eee'></label>":            "border",
	} {
		write := fmt.Sprintf("(document.open(), document.write(%q), document.close())", fmt.Sprintf(page, html))
		b.run(chromedp.Navigate("about:blank"), chromedp.Evaluate(write, nil), chromedp.Evaluate(rules, nil))
		got := eval[[]string](b, "violations()")
		found := slices.ContainsFunc(got, func(v string) bool { return strings.Contains(v, want) })
		if want == "" && len(got) > 0 || want != "" && !found {
			t.Errorf("%s: violations %q, want %q", html, got, want)
		}
	}
}
