// Package helm renders the Helm chart of deploy/helm with the Helm library and
// checks the result with the types of the Kubernetes API. It is a separate
// module, because these libraries are many times as large as the program. "make
// helm-test" runs the tests.
package helm
