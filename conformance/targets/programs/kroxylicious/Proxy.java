import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;

/** Runs Kroxylicious with the configuration on the command line, until standard input ends. */
public class Proxy {
    public static void main(String[] arguments) throws Exception {
        var parser = new ConfigParser();
        var configuration = parser.parseConfiguration(arguments[1]);
        try (var proxy = new KafkaProxy(parser, configuration, Features.defaultFeatures()).startup()) {
            System.out.println("ready " + arguments[0]);
            while (System.in.read() >= 0) {
            }
        }
        System.exit(0);
    }
}
