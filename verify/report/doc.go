// Package report renders the result of a verification as one self-contained
// HTML page. The page shows the verdict, the checks, and the faults that were
// injected and seen. For each episode it has a chart of the holders of each
// lock over time. Bands in the chart show the faults, and marks show the
// violations.
package report
