// The suite's own configuration also builds the package, with tools that the tests do without.
export default {test: {include: ["index_test.ts"], exclude: [], testTimeout: 60_000}}
