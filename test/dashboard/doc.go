// Package dashboard tests the web dashboard in headless Chromium: every page
// with the data of a cluster of three real processes, also on a phone and in a
// dark theme. It also tests names that contain markup, and a leader that is
// killed while a page is open. With -update it writes the pictures of
// docs/dashboard.md.
package dashboard
