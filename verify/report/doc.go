// Package report renders the result of a verification as one self-contained
// HTML page. The page begins with the verdict and with a chart of one episode:
// which node led, which client owned which lock, how many commands per second
// the clients sent, and how long they waited. Bands in the chart show the
// faults, and marks show the violations. Then the page shows the checks, the
// faults that were injected and seen, and the charts of the other episodes. It
// follows the color scheme of the browser.
package report
