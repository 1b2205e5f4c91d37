// Package process tests the shipped program as an operator uses it, from kill
// -9 under load to the texts of its errors. Its tests run real processes, which
// package verify/process starts.
package process
