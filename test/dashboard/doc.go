// Package dashboard tests the web dashboard in headless Chromium: every page with
// the data of a cluster of three real processes, names that try to be markup, a
// phone, a dark theme, and a leader that is killed while a page is open. With
// -update it writes the pictures of docs/dashboard.md.
package dashboard
