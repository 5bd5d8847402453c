import org.neo4j.configuration.GraphDatabaseSettings;
import org.neo4j.harness.Neo4j;
import org.neo4j.harness.Neo4jBuilders;

/** Runs Neo4j until its input ends. Prints the address of its HTTP interface. */
class Server {
    public static void main(String[] arguments) throws Exception {
        try (Neo4j server = Neo4jBuilders.newInProcessBuilder()
                .withConfig(GraphDatabaseSettings.auth_enabled, false).build()) {
            System.out.println(server.httpURI());
            System.out.flush();
            while (System.in.read() >= 0) {
            }
        }
    }
}
